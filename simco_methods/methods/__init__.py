"""The methods, on whichever host is there. ``register()`` makes them solo-learn's own."""

from __future__ import annotations

import warnings

from simco_methods.host import HOST
from simco_methods.methods.mocov2 import MoCoV2
from simco_methods.methods.simco import SimCo
from simco_methods.methods.simmoco import SimMoCo

METHODS = {"simco": SimCo, "simmoco": SimMoCo, "mocov2": MoCoV2}


def register() -> None:
    """Adds the methods to solo-learn's table; a name that is there already stays."""
    if HOST != "solo-learn":
        warnings.warn(
            "simco, simmoco and mocov2 are not added to solo-learn: SIMCO_HOST=builtin is set",
            stacklevel=2,
        )
        return
    from solo.methods import METHODS as SOLO_METHODS

    for name, method in METHODS.items():
        SOLO_METHODS.setdefault(name, method)


__all__ = ["METHODS", "MoCoV2", "SimCo", "SimMoCo", "register"]
