"""The dictionary analyses, on any checkpoint and during training.

:data:`ANALYSES` maps a name to a module with ``run(samples) -> Finding``.
"""

from importlib import import_module
from typing import Any

from simco_methods import options

__all__ = ["ANALYSES"]


def __getattr__(name: str) -> Any:
    # When it is asked for: the settings in this package must not load torch.
    if name == "ANALYSES":
        return {name: import_module(f"{__name__}.{name}") for name in options.ANALYSES}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
