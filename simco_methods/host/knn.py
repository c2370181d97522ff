"""Weighted k-nearest-neighbour accuracy (Wu et al., 2018, https://arxiv.org/abs/1805.01978)."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from simco_methods.host.neighbours import Bank

DISTANCES = ("cosine", "euclidean")
# MiB where nothing is said.
_CPU_MEMORY, _DEVICE_MEMORY = 128, 1024


@torch.no_grad()
def knn_accuracy(
    train_features: Tensor,
    train_targets: Tensor,
    test_features: Tensor,
    test_targets: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
    distance: str = "cosine",
    num_classes: int | None = None,
    memory_mib: float | None = None,
) -> tuple[float, float]:
    """Accuracy of the weighted vote of the k nearest training features.

    A neighbour's weight is exp(similarity / temperature) for cosine, 1 / distance for euclidean.

    Args:
        train_features: (N, D) bank.
        train_targets: (N,) class numbers from 0.
        test_features: (M, D) queries.
        test_targets: (M,) class numbers from 0.
        k: neighbours, at most N are used.
        temperature: of the cosine weights.
        distance: "cosine" or "euclidean".
        num_classes: classes that can be voted for; None takes the largest number in either set.
        memory_mib: what the work may take beside these tensors, down to one query and 8 rows of
            the bank at a time; None for 128 on a CPU, else 1024.

    Returns:
        Top-1 and top-5 accuracy in percent; of top-5, as many as there are classes and neighbours.

    Raises:
        ValueError: an unknown distance, k below 1, or an empty set.
    """
    if distance not in DISTANCES:
        raise ValueError(f"distance must be one of {', '.join(DISTANCES)}, got {distance!r}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if not len(train_targets) or not len(test_targets):
        raise ValueError(
            f"kNN needs labelled images on both sides, got {len(train_targets)} in the bank and "
            f"{len(test_targets)} to classify"
        )
    if num_classes is None:
        num_classes = int(max(train_targets.max(), test_targets.max())) + 1
    if memory_mib is None:
        memory_mib = _CPU_MEMORY if train_features.device.type == "cpu" else _DEVICE_MEMORY
    memory = int(memory_mib * 2**20)
    k = min(k, len(train_targets))
    top5 = min(5, k, num_classes)
    correct = torch.zeros(2, dtype=torch.long, device=test_features.device)
    bank = Bank(train_features, distance, k, memory)
    for queries, targets in zip(
        test_features.split(bank.queries), test_targets.split(bank.queries), strict=True
    ):
        score, neighbour = bank.nearest(queries)
        if distance == "cosine":
            weight = score.div_(temperature).exp_()
        else:
            weight = bank.distances(queries, neighbour).add_(1e-5).reciprocal_()
        rows = max(1, memory // (32 * num_classes))
        for parts in zip(*(t.split(rows) for t in (weight, neighbour, targets)), strict=True):
            rank = _rank(parts[0], train_targets[parts[1]], parts[2], num_classes)
            correct += torch.stack([(rank < top).sum() for top in (1, top5)])
    top1_percent, top5_percent = (100.0 * correct / len(test_targets)).tolist()
    return top1_percent, top5_percent


def _rank(weight: Tensor, voted: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """How many classes come before each target, (M,).

    Of classes with equal votes, none included, the lower number comes first.
    """
    votes = torch.zeros(len(weight), num_classes, device=weight.device)
    votes.scatter_add_(1, voted, weight).nan_to_num_(nan=torch.inf, posinf=torch.inf)
    targets = targets.unsqueeze(1)
    own = votes.gather(1, targets.clamp(0, num_classes - 1))
    lower = torch.arange(num_classes, device=weight.device) < targets
    before = (votes > own).sum(dim=1) + lower.logical_and_(votes == own).sum(dim=1)
    known = (targets >= 0) & (targets < num_classes)
    return torch.where(known.squeeze(1), before, num_classes)


class OnlineKNN(Metric):
    """Gathers features during an epoch, from all processes, and gives their kNN accuracy.

    Rows labelled -1 are left out. Nothing of it is saved with checkpoints.

    Args:
        k, distance: see :func:`knn_accuracy`.
        num_classes: classes of the data set, whatever labels turn up.
    """

    full_state_update = False

    def __init__(self, k: int = 20, distance: str = "euclidean", num_classes: int | None = None):
        super().__init__()
        self.k, self.distance, self.num_classes = k, distance, num_classes
        for side in ("train", "test"):
            for part in ("features", "targets"):
                self.add_state(f"{side}_{part}", default=[], dist_reduce_fx="cat")
        # How many of the states' first parts hold no unlabelled row.
        self._labelled = dict.fromkeys(("train", "test"), 0)

    def update(self, side: str, features: Tensor, targets: Tensor) -> None:
        """Adds features (N, D) and targets (N,) to ``side``, "train" or "test".

        Unlabelled rows stay until :meth:`drop_unlabelled`: to tell which they are would be to wait
        for the device.
        """
        features = features.detach()
        if features.untyped_storage().nbytes() > features.numel() * features.element_size():
            features = features.clone()  # of a larger tensor, which need not stay
        getattr(self, f"{side}_features").append(features)
        getattr(self, f"{side}_targets").append(targets)

    def drop_unlabelled(self) -> None:
        """Frees the memory of the unlabelled rows among those added since the last call."""
        for side, first in self._labelled.items():
            states = [getattr(self, f"{side}_{part}") for part in ("features", "targets")]
            if len(states[1]) > first:
                labelled = torch.cat(states[1][first:]) != -1
                if not labelled.all():
                    for state in states:
                        state[first:] = [torch.cat(state[first:])[labelled]]
            self._labelled[side] = len(states[1])

    def bank(self) -> list[Tensor]:
        """Features and targets of this process's "train" side; none if it is empty."""
        parts = (self._whole("train_features"), self._whole("train_targets"))
        return [part for part in parts if part is not None]

    def load_bank(self, bank: list[Tensor]) -> None:
        """Takes another's :meth:`bank` for its own."""
        self.reset()
        if bank:
            self.update("train", *bank)

    def reset(self) -> None:
        """Forgets all rows."""
        super().reset()
        self._labelled = dict.fromkeys(("train", "test"), 0)

    def compute(self) -> tuple[float, float] | None:
        """Top-1 and top-5 accuracy in percent, None while a side has no labelled row."""
        if isinstance(self.train_targets, list):  # else they are those of all processes
            self.drop_unlabelled()
        sides = []
        for side in ("train", "test"):
            features, targets = (self._whole(f"{side}_{part}") for part in ("features", "targets"))
            if targets is None:
                return None
            labelled = targets != -1
            if not labelled.all():
                features, targets = features[labelled], targets[labelled]
            if not len(targets):
                return None
            sides += [features, targets]
        return knn_accuracy(*sides, k=self.k, distance=self.distance, num_classes=self.num_classes)

    def _whole(self, name: str) -> Tensor | None:
        """A state in one tensor, in place of its parts, which would double the memory."""
        state = getattr(self, name)
        if not isinstance(state, list):
            return state
        if not state:
            return None
        whole = torch.cat(state) if len(state) > 1 else state[0]
        state[:] = [whole]
        return whole
