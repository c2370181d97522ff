"""The dictionary analyses, on any checkpoint and during training.

:data:`ANALYSES` maps a name to a module with ``run(samples) -> Finding``.
"""

from importlib import import_module

from simco_methods.analysis.settings import NAMES

ANALYSES = {name: import_module(f"{__name__}.{name}") for name in NAMES}

__all__ = ["ANALYSES"]
