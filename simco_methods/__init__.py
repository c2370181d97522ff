"""SimCo, SimMoCo, MoCo v2 and the dual-temperature loss, for solo-learn or without it.

The losses are importable on their own (``from simco_methods.losses import dual_temperature_loss``);
the methods are in :mod:`simco_methods.methods`, the trainer in :mod:`simco_methods.pretrain`, and
:func:`load_encoder` gives what has been trained.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simco_methods.data.folders import image_files
    from simco_methods.encoder import Encoder, load_encoder

__version__ = "0.1.0"
__all__ = ["Encoder", "__version__", "image_files", "load_encoder"]


def __getattr__(name: str) -> Any:
    # When it is asked for: a Hydra app that finds the plugin must not load torch for it.
    if name in ("Encoder", "load_encoder"):
        from simco_methods import encoder

        return getattr(encoder, name)
    if name == "image_files":
        from simco_methods.data.folders import image_files

        return image_files
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
