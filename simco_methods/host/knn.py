"""Weighted k-nearest-neighbour accuracy (Wu et al., 2018, https://arxiv.org/abs/1805.01978)."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from simco_methods.host.votes import hits, knn_votes
from simco_methods.measures import has_top5


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
) -> tuple[float, float | None]:
    """Accuracy of the weighted vote of the k nearest training features.

    Args:
        train_features: (N, D) bank.
        train_targets: (N,) class numbers from 0.
        test_features: (M, D) queries.
        test_targets: (M,) class numbers from 0.
        k: neighbours, at most N are used.
        temperature, distance, num_classes, memory_mib: see
            :func:`~simco_methods.host.votes.knn_votes`; of the classes None
            takes the largest number in either set.

    Returns:
        Top-1 and top-5 accuracy in percent. A class without a vote is not among the five; of fewer
        than six classes there is no top-5 accuracy, None.

    Raises:
        ValueError: an unknown distance, k below 1, or an empty set.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if not len(train_targets) or not len(test_targets):
        raise ValueError(
            f"kNN needs labelled images on both sides, got {len(train_targets)} in the bank and "
            f"{len(test_targets)} to classify"
        )
    if num_classes is None:
        num_classes = int(max(train_targets.max(), test_targets.max())) + 1
    k = min(k, len(train_targets))
    correct = torch.zeros(2, dtype=torch.long, device=test_features.device)
    for votes in knn_votes(
        train_features,
        train_targets,
        test_features,
        ks=[k],
        temperatures=[temperature],
        distance=distance,
        num_classes=num_classes,
        memory_mib=memory_mib,
    ):
        correct += hits(votes.votes, test_targets[votes.queries])
    top1_percent, top5_percent = (100.0 * correct / len(test_targets)).tolist()
    return top1_percent, top5_percent if has_top5(num_classes) else None


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

    def compute(self) -> tuple[float, float | None] | None:
        """As of :func:`knn_accuracy`; None while a side has no labelled row."""
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
