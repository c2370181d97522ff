"""Losses and their gradient components, as pure functions of tensors.

They need torch and nothing else: no config, no Lightning, no process group.
"""

from simco_methods.losses.decoupled_info_nce import decoupled_info_nce_loss
from simco_methods.losses.dual_temperature import dual_temperature_loss
from simco_methods.losses.hardness import (
    anchor_hardness,
    negative_penalty,
    penalty_entropy,
    relative_penalty,
)
from simco_methods.losses.info_nce import info_nce_loss
from simco_methods.losses.kernel import l2_normalize
from simco_methods.losses.weighted_cross_entropy import (
    class_hardness,
    weighted_cross_entropy_loss,
)

__all__ = [
    "anchor_hardness",
    "class_hardness",
    "decoupled_info_nce_loss",
    "dual_temperature_loss",
    "info_nce_loss",
    "l2_normalize",
    "negative_penalty",
    "penalty_entropy",
    "relative_penalty",
    "weighted_cross_entropy_loss",
]
