"""Metrics of the online classifier, and means over an epoch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def probe_metrics(logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Cross entropy and accuracies over the labelled rows (target != -1).

    Args:
        logits: (N, C).
        targets: (N,) class numbers, -1 where there is no label.

    Returns:
        ``loss`` (scalar; zero, with zero gradient, if no row is labelled), ``acc1`` and ``acc5``
        (each (1,), percent). With fewer than 5 classes acc5 takes as many as there are.
    """
    count = (targets != -1).sum().clamp(min=1).float()
    loss = F.cross_entropy(logits.float(), targets, ignore_index=-1, reduction="sum") / count
    with torch.no_grad():
        hits = logits.topk(min(5, logits.shape[1])).indices == targets.unsqueeze(1)
        acc1 = hits[:, :1].float().sum() * 100 / count
        acc5 = hits.float().sum() * 100 / count
    return {"loss": loss, "acc1": acc1.reshape(1), "acc5": acc5.reshape(1)}


class EpochMeans:
    """Weighted means over an epoch, summed on the device and read once."""

    def __init__(self):
        self._sums: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, values: dict[str, Tensor], weight: Tensor | float) -> None:
        for name, value in values.items():
            value = value.detach().float().reshape(())
            weight = torch.as_tensor(weight, dtype=torch.float32, device=value.device)
            # A weight of 0 drops the value, NaN included.
            pair = torch.stack([torch.where(weight > 0, value * weight, 0.0), weight])
            self._sums[name] = self._sums[name] + pair if name in self._sums else pair

    def pop(self, trainer) -> dict[str, float]:
        """The means over all processes, without those of no weight; starts a new epoch."""
        if not self._sums:
            return {}
        names, sums = list(self._sums), torch.stack(list(self._sums.values()))
        self._sums = {}
        if trainer.world_size > 1:
            sums = trainer.strategy.reduce(sums, reduce_op="sum")
        return {
            name: total / weight
            for name, (total, weight) in zip(names, sums.tolist(), strict=True)
            if weight > 0
        }
