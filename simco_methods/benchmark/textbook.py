"""The other side of the benchmarks: the losses, and the steps, as one would write them down."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from simco_methods.host import LeanMomentumMethod


def dual_temperature(query: Tensor, key: Tensor, tau_alpha: float, tau_beta: float) -> Tensor:
    """Eq. 9 of both sides, by softmax: W_beta / W_alpha times cross entropy."""
    losses = [_one_side(query @ key.T, tau_alpha, tau_beta)]
    losses.append(_one_side(key @ query.T, tau_alpha, tau_beta))
    return sum(losses) / 2


def dual_temperature_one_product(
    query: Tensor, key: Tensor, tau_alpha: float, tau_beta: float
) -> Tensor:
    """The same, by one who sees that the two sides' similarities are one matrix."""
    similarity = query @ key.T
    sides = (_one_side(side, tau_alpha, tau_beta) for side in (similarity, similarity.T))
    return sum(sides) / 2


def _one_side(similarity: Tensor, tau_alpha: float, tau_beta: float) -> Tensor:
    log_p = F.log_softmax(similarity / tau_alpha, dim=1).diagonal()
    with torch.no_grad():
        hardness = 1 - log_p.exp()
        weight = (1 - F.softmax(similarity / tau_beta, dim=1).diagonal()) / hardness
    return -(weight * log_p).mean()


def info_nce(query: Tensor, key: Tensor, queue: Tensor, tau: float) -> Tensor:
    """Eq. 1 against a queue, by cross entropy of positives and negatives side by side."""
    positive = (query * key).sum(dim=1, keepdim=True)
    logits = torch.cat([positive, query @ queue.T], dim=1) / tau
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long, device=query.device))


class _EveryView:
    """Forwards both views through the online network, whichever the method reads."""

    def forward_views(self, batch: Any, views: Any = (0, 1)) -> dict[str, Any]:
        outs = super().forward_views(batch, (0, 1))
        return {k: [v[i] for i in views] if isinstance(v, list) else v for k, v in outs.items()}


class _EveryViewTwice(_EveryView):
    """And both through the momentum network, whichever it reads."""

    def forward_momentum_views(self, batch: Any, views: Any = (0, 1)) -> dict[str, Any]:
        outs = super().forward_momentum_views(batch, (0, 1))
        return {k: [v[i] for i in views] if isinstance(v, list) else v for k, v in outs.items()}


class _UnusedMomentum(_EveryView):
    """Both views through a momentum network that the method does not have, too."""

    def __init__(self, cfg: Any):
        super().__init__(cfg)
        self.unused = torch.nn.ModuleList(copy.deepcopy([self.backbone, self.projector]))
        for parameter in self.unused.parameters():
            parameter.requires_grad = False

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        with torch.no_grad():
            for images in batch[1]:
                self.unused[1](self.unused[0](images))
        return super().training_step(batch, batch_idx)


def every_view_through_both(method: type) -> type:
    """The method as solo-learn and the authors' code train it: 8F for SimCo, else 6F."""
    mixin = _EveryViewTwice if issubclass(method, LeanMomentumMethod) else _UnusedMomentum
    return type(f"EveryView{method.__name__}", (mixin, method), {})
