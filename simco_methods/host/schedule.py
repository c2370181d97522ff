"""Linear warm-up and cosine decay, in closed form: a step's rate depends on the step alone."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def warmup_cosine(
    base_lr: float,
    step: int,
    *,
    warmup_steps: int,
    total_steps: int,
    warmup_start_lr: float = 0.0,
    min_lr: float = 0.0,
) -> float:
    """The learning rate at ``step`` (from 0).

    From ``warmup_start_lr`` at step 0 to ``base_lr`` at step ``warmup_steps - 1``, held for one
    step, then half a cosine down to ``min_lr`` at ``total_steps``. Without warm-up every group
    starts from ``warmup_start_lr``. All of it as solo-learn's scheduler does.
    """
    if step < warmup_steps:
        share = step / max(1, warmup_steps - 1)
        return (1 - share) * warmup_start_lr + share * base_lr  # so it is never below 0
    peak = base_lr if warmup_steps > 0 else warmup_start_lr
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return min_lr + (peak - min_lr) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


class WarmupCosineLR(LRScheduler):
    """:func:`warmup_cosine` for every parameter group.

    Args:
        optimizer: whose groups' rates are the base rates.
        warmup_steps: scheduler steps of warm-up.
        total_steps: scheduler steps of the whole training.
        warmup_start_lr: rate at step 0.
        min_lr: rate at the end.
        static_groups: indexes of groups that keep their base rate.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int,
        total_steps: int,
        warmup_start_lr: float = 0.0,
        min_lr: float = 0.0,
        static_groups: Collection[int] = (),
    ):
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.warmup_start_lr = warmup_start_lr
        self.min_lr = min_lr
        self.static_groups = list(static_groups)
        super().__init__(optimizer)

    def state_dict(self) -> dict[str, Any]:
        """How far it has come; the lengths belong to the config, which may be extended."""
        return {"last_epoch": self.last_epoch, "_step_count": self._step_count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there, at the rates of this schedule."""
        super().load_state_dict(state_dict)
        for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = lr
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def get_lr(self) -> list[float]:
        return [
            base_lr
            if group in self.static_groups
            else warmup_cosine(
                base_lr,
                self.last_epoch,
                warmup_steps=self.warmup_steps,
                total_steps=self.total_steps,
                warmup_start_lr=self.warmup_start_lr,
                min_lr=self.min_lr,
            )
            for group, base_lr in enumerate(self.base_lrs)
        ]
