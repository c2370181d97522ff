"""Metrics of the online classifier, and means over an epoch."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from simco_methods.measures import has_top5


def probe_metrics(logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Cross entropy and accuracies over the labelled rows (target != -1).

    Args:
        logits: (N, C).
        targets: (N,) class numbers, -1 where there is no label.

    Returns:
        ``loss`` (scalar; zero, with zero gradient, if no row is labelled), ``acc1`` and, of six
        classes and more, ``acc5`` (each (1,), percent).
    """
    count = (targets != -1).sum().clamp(min=1).float()
    loss = F.cross_entropy(logits.float(), targets, ignore_index=-1, reduction="sum") / count
    with torch.no_grad():
        top5 = has_top5(logits.shape[1])
        hits = logits.topk(5 if top5 else 1).indices == targets.unsqueeze(1)
        found = {"loss": loss, "acc1": (hits[:, :1].float().sum() * 100 / count).reshape(1)}
        if top5:
            found["acc5"] = (hits.float().sum() * 100 / count).reshape(1)
    return found


class EpochMeans:
    """Weighted means over an epoch, summed on the device and read once.

    Values that are added together under one weight are one tensor.
    """

    def __init__(self):
        self._sums: dict[tuple[str, ...], tuple[Tensor, Tensor | float]] = {}

    @torch.no_grad()
    def add(self, values: dict[str, Tensor], weight: Tensor | float) -> None:
        """Adds scalars, or tensors of one entry, with a weight of at least 0."""
        names = tuple(values)
        row = torch.stack([value.detach().reshape(()) for value in values.values()]).float()
        if isinstance(weight, Tensor):
            weight = weight.float()
            # A weight of 0 drops the values, NaN included.
            row = torch.where(weight > 0, row * weight, 0.0)
        elif weight != 1:
            row = row * weight if weight > 0 else torch.zeros_like(row)
        if names in self._sums:
            total, weights = self._sums[names]
            row, weight = total + row, weights + weight
        self._sums[names] = row, weight

    def state(self) -> list[Any]:
        """The sums so far, of this process."""
        return [(list(names), *sums) for names, sums in self._sums.items()]

    def load_state(self, state: list[Any], device: torch.device) -> None:
        """Goes on from another's :meth:`state`."""
        self._sums = {
            tuple(names): (row.to(device), w.to(device) if isinstance(w, Tensor) else w)
            for names, row, w in state
        }

    def pop(self, trainer) -> dict[str, float]:
        """The means over all processes, without those of no weight; starts a new epoch."""
        if not self._sums:
            return {}
        names = [name for names in self._sums for name in names]
        pairs = []
        for row, weight in self._sums.values():
            if not isinstance(weight, Tensor):
                weight = row.new_full((), weight)
            pairs.append(torch.stack([row, weight.expand_as(row)]))
        self._sums = {}
        sums = torch.cat(pairs, dim=1)
        if trainer.world_size > 1:
            sums = trainer.strategy.reduce(sums, reduce_op="sum")
        return {
            name: total / weight
            for name, total, weight in zip(names, *sums.tolist(), strict=True)
            if weight > 0
        }


def mean_of(values: Sequence[Tensor]) -> Tensor:
    """The mean of a few tensors, with no operation where there is one."""
    return values[0] if len(values) == 1 else functools.reduce(operator.add, values) / len(values)
