"""The methods, on whichever host is there. ``register()`` makes them solo-learn's own."""

from __future__ import annotations

import os
import warnings

from simco_methods.host import HOST
from simco_methods.methods.byol_hardness import BYOLHardness
from simco_methods.methods.decoupled_moco import DecoupledMoCo
from simco_methods.methods.mocov2 import MoCoV2
from simco_methods.methods.simco import SimCo
from simco_methods.methods.simmoco import SimMoCo
from simco_methods.methods.simsiam_hardness import SimSiamHardness
from simco_methods.methods.supervised_hardness import SupervisedHardness

METHODS = {
    "simco": SimCo,
    "simmoco": SimMoCo,
    "mocov2": MoCoV2,
    "decoupled_moco": DecoupledMoCo,
    "simsiam_hardness": SimSiamHardness,
    "byol_hardness": BYOLHardness,
    "supervised_hardness": SupervisedHardness,
}


def register() -> None:
    """Adds the methods to solo-learn's table, where a name that is there already stays.

    Also makes the mends of :mod:`simco_methods.host.mends`. On the built-in host it adds
    nothing, with a warning where that was asked for (an unusable solo-learn has had its own).
    """
    if HOST != "solo-learn":
        if os.environ.get("SIMCO_HOST"):
            warnings.warn(
                f"{', '.join(METHODS)} are not added to solo-learn: SIMCO_HOST={HOST} is set; "
                "unset it",
                stacklevel=2,
            )
        return
    from solo.methods import METHODS as SOLO_METHODS

    from simco_methods.host.mends import mend

    mend()
    for name, method in METHODS.items():
        SOLO_METHODS.setdefault(name, method)


def find_method(name: str) -> type:
    """The class of a method: the pack's, or under the solo-learn host also one of solo-learn's.

    The latter within :class:`simco_methods.host.solo_learn.Baseline`.

    Raises:
        ValueError: neither has a method of that name.
    """
    if name in METHODS:
        return METHODS[name]
    known, missing = list(METHODS), "; solo-learn's own need solo-learn on the path"
    if HOST == "solo-learn":
        register()
        from solo.methods import METHODS as SOLO_METHODS

        from simco_methods.host.solo_learn import Baseline

        if name in SOLO_METHODS and name not in ("base", "linear"):
            kind = SOLO_METHODS[name]
            return type(kind.__name__, (Baseline, kind), {})
        known, missing = list(dict.fromkeys([*METHODS, *SOLO_METHODS])), ""
    raise ValueError(f"method={name!r} is none of {', '.join(known)}{missing}")


__all__ = [
    "METHODS",
    "BYOLHardness",
    "DecoupledMoCo",
    "MoCoV2",
    "SimCo",
    "SimMoCo",
    "SimSiamHardness",
    "SupervisedHardness",
    "find_method",
    "register",
]
