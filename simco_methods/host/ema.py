"""The momentum encoder's exponential moving average and its coefficient tau."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


@torch.no_grad()
def initialize_momentum_params(online: nn.Module, momentum: nn.Module) -> None:
    """Copies the online parameters into ``momentum`` and freezes them there."""
    for source, target in zip(online.parameters(), momentum.parameters(), strict=True):
        target.copy_(source)
        target.requires_grad = False


class MomentumUpdater:
    """momentum <- tau * momentum + (1 - tau) * online, in place.

    tau goes from ``base_tau`` to ``final_tau`` along half a cosine and is a function of the step
    alone, so a resumed run goes on with the tau it stopped at.

    Args:
        base_tau: at step 0, in [0, 1].
        final_tau: at the last step, in [base_tau, 1].

    Raises:
        ValueError: values out of these ranges.
    """

    def __init__(self, base_tau: float = 0.996, final_tau: float = 1.0):
        if not 0 <= base_tau <= final_tau <= 1:
            raise ValueError(
                "momentum.base_tau and momentum.final_tau must satisfy "
                f"0 <= base_tau <= final_tau <= 1, got {base_tau} and {final_tau}"
            )
        self.base_tau = base_tau
        self.final_tau = final_tau
        self.cur_tau = base_tau

    def update(self, online: nn.Module, momentum: nn.Module) -> None:
        """Moves every parameter of ``momentum`` towards its twin in ``online``."""
        self.update_pairs([(online, momentum)])

    @torch.no_grad()
    def update_pairs(self, pairs: Iterable[tuple[nn.Module, nn.Module]]) -> None:
        """:meth:`update` for all pairs in one call."""
        online, momentum = [], []
        for online_net, momentum_net in pairs:
            online += online_net.parameters()
            momentum += momentum_net.parameters()
        get_ema_multi_avg_fn(self.cur_tau)(momentum, online, None)

    def update_tau(self, cur_step: int, max_steps: float) -> None:
        """Sets tau for the update after ``cur_step`` of ``max_steps`` optimiser steps."""
        progress = min(1.0, cur_step / max_steps)
        span = self.final_tau - self.base_tau
        self.cur_tau = self.final_tau - span * (math.cos(math.pi * progress) + 1) / 2
