"""Linear classifiers of several learning rates, trained side by side on the same features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simco_methods.evaluation.accuracy import hits
from simco_methods.evaluation.linear_training import make_optimizer
from simco_methods.measures import has_top5

Labelled = tuple[Tensor, Tensor]  # features (N, F), labels (N,)

_LOGITS = 2**24  # that are computed at a time in an evaluation
INIT_STD = 0.01  # of the weights


class Heads:
    """Classifiers of G pairs of learning rate and weight decay, each the same at the start.

    Where a share of the images is held out there are G more, which do not see it.

    Args:
        grid: G pairs of learning rate and weight decay; biases have no decay.
        classes: C.
        optimizer: "sgd", "lars" or "adamw".
        test: to test on.
        held: (N,) bool, which training images are held out; None for none.
        held_out: what they are.
        label_smoothing: of the targets.
        seed: of the weights at the start.
    """

    def __init__(
        self,
        grid: Sequence[tuple[float, float]],
        classes: int,
        optimizer: str,
        test: Labelled,
        held: Tensor | None = None,
        held_out: Labelled | None = None,
        label_smoothing: float = 0.0,
        seed: int = 0,
    ):
        self.grid, self.classes, self.smoothing = list(grid), classes, label_smoothing
        self.test, self.held_out = test, held_out
        self.kept = None if held is None else ~held
        width, device = test[0].shape[1], test[0].device
        self.sets = 1 if held is None else 2
        self.count = self.sets * len(self.grid)
        generator = torch.Generator().manual_seed(seed)
        first = torch.randn(classes, width, generator=generator, dtype=test[0].dtype) * INIT_STD
        # One tensor for one matrix product, and views of it that the optimiser knows.
        self.weight = first.to(device).repeat(self.count, 1).requires_grad_()
        self.bias = torch.zeros_like(self.weight[:, 0]).detach().requires_grad_()
        self._parts = [
            [nn.Parameter(part) for part in whole.detach().split(classes)]
            for whole in (self.weight, self.bias)
        ]
        groups = []
        for parts, decays in zip(self._parts, (True, False), strict=True):
            for number, (lr, decay) in enumerate(self.grid):
                params = parts[number :: len(self.grid)]
                groups.append(
                    {"params": params, "lr": lr, "weight_decay": decay if decays else 0.0}
                )
        self.optimizer = make_optimizer(optimizer, groups)

    def step(self, number: int, indices: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """One step of all; returns each one's loss, (count,)."""
        rows = len(labels)
        share = torch.full((rows, self.count), 1 / rows, device=labels.device, dtype=features.dtype)
        if self.kept is not None:
            kept = self.kept[indices].to(share)
            share[:, len(self.grid) :] = (kept / kept.sum().clamp(min=1))[:, None]
        logits = F.linear(features, self.weight, self.bias).view(rows * self.count, self.classes)
        each = F.cross_entropy(
            logits,
            labels.repeat_interleave(self.count),
            reduction="none",
            label_smoothing=self.smoothing,
        )
        losses = (each.view(rows, self.count) * share).sum(dim=0)
        gradients = torch.autograd.grad(losses.sum(), (self.weight, self.bias))
        for parts, gradient in zip(self._parts, gradients, strict=True):
            for part, own in zip(parts, gradient.split(self.classes), strict=True):
                part.grad = own
        self.optimizer.step()
        return losses.detach()

    @torch.no_grad()
    def evaluate(self) -> dict[str, list[float]]:
        """``acc1`` and, of six classes and more, ``acc5`` on the test images, and ``held_acc1`` and
        ``held_loss`` on those held out, a number for each pair; NaN for a classifier that has
        become so."""
        pairs = slice(0, len(self.grid))
        acc1, acc5, _ = self._measure(self.test, pairs)
        found = {"acc1": acc1}
        if has_top5(self.classes):
            found["acc5"] = acc5
        if self.held_out is not None:
            held, _, loss = self._measure(self.held_out, slice(len(self.grid), self.count))
            found |= {"held_acc1": held, "held_loss": loss}
        return found

    def head(self, number: int) -> nn.Linear:
        """The classifier of a pair, trained on all images; on the CPU."""
        weight, bias = (parts[number].detach().cpu() for parts in self._parts)
        head = nn.Linear(weight.shape[1], self.classes, dtype=weight.dtype)
        head.load_state_dict({"weight": weight, "bias": bias})
        return head

    def state_dict(self) -> dict[str, Any]:
        state = {"weight": self.weight.detach(), "bias": self.bias.detach()}
        return {**state, "optimizer": self.optimizer.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight.copy_(state["weight"])
        self.bias.copy_(state["bias"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _measure(self, labelled: Labelled, which: slice) -> list[list[float]]:
        rows = slice(which.start * self.classes, which.stop * self.classes)
        weight, bias = self.weight[rows], self.bias[rows]
        count = which.stop - which.start
        sums = torch.zeros(3, count, device=weight.device, dtype=torch.float64)
        step = max(1, _LOGITS // (count * self.classes))
        for features, labels in zip(*(part.split(step) for part in labelled), strict=True):
            logits = F.linear(features, weight, bias).view(-1, count, self.classes).transpose(0, 1)
            sums[:2] += hits(logits, labels).sum(dim=1).T
            each = F.cross_entropy(
                logits.flatten(0, 1), labels.repeat(count), reduction="none"
            ).view(count, -1)
            sums[2] += each.double().sum(dim=1)
        sums /= len(labelled[1])
        sums[:2] *= 100
        sums[:, ~sums[2].isfinite()] = torch.nan
        return sums.tolist()
