"""What pretraining leaves: a backbone with the preprocessing of its images."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simco_methods.encoder.card import Card
    from simco_methods.encoder.encoder import Encoder
    from simco_methods.encoder.loading import load_encoder

__all__ = ["Card", "Encoder", "load_encoder"]


def __getattr__(name: str) -> Any:
    # When it is asked for: the settings in this package must not load torch.
    places = {"Card": "card", "Encoder": "encoder", "load_encoder": "loading"}
    if name in places:
        return getattr(import_module(f"{__name__}.{places[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
