"""Which base classes the methods stand on: solo-learn's if it is there, else the built-in ones.

``SIMCO_HOST=solo-learn`` or ``builtin`` forces the choice; unset, the pack chooses.

Attributes:
    HOST: "solo-learn" or "builtin".
    BaseMethod, BaseMomentumMethod: the host's base classes.
    LeanMethod, LeanMomentumMethod: the same with the steps of :mod:`simco_methods.host.steps`; what
        the methods of the pack derive from. On the built-in host they are the base classes.
"""

from __future__ import annotations

from simco_methods.backbones import PACK_BACKBONES
from simco_methods.choice import choose_host

HOST = choose_host()
if HOST == "solo-learn":
    from simco_methods.host.solo_learn import (
        BaseMethod,
        BaseMomentumMethod,
        LeanMethod,
        LeanMomentumMethod,
    )
else:
    from simco_methods.host.builtin import BaseMethod, BaseMomentumMethod

    LeanMethod, LeanMomentumMethod = BaseMethod, BaseMomentumMethod

for _name, _backbone in PACK_BACKBONES.items():
    BaseMethod._BACKBONES.setdefault(_name, _backbone)

__all__ = ["HOST", "BaseMethod", "BaseMomentumMethod", "LeanMethod", "LeanMomentumMethod"]
