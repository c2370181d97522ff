"""Weighted k-nearest-neighbour accuracy (Wu et al., 2018, https://arxiv.org/abs/1805.01978)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric

DISTANCES = ("cosine", "euclidean")


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
    max_distance_matrix_size: int = 5_000_000,
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
        max_distance_matrix_size: similarities held at once.

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
    train_features, test_features = train_features.float(), test_features.float()
    if distance == "cosine":
        train_features, test_features = F.normalize(train_features), F.normalize(test_features)
    k = min(k, len(train_targets))
    top5 = min(5, k, num_classes)
    correct = torch.zeros(2, dtype=torch.long, device=test_features.device)
    rows = max(1, max_distance_matrix_size // len(train_targets))
    for features, targets in zip(test_features.split(rows), test_targets.split(rows), strict=True):
        if distance == "cosine":
            similarity, neighbour = (features @ train_features.T).topk(k)
            weight = torch.exp(similarity / temperature)
        else:
            similarity, neighbour = torch.cdist(features, train_features).topk(k, largest=False)
            weight = 1 / (similarity + 1e-5)
        votes = torch.zeros(len(features), num_classes, device=features.device)
        votes.scatter_add_(1, train_targets[neighbour], weight)
        # Stable: of classes with equal votes, none included, the lower number comes first.
        ranking = votes.sort(dim=1, descending=True, stable=True).indices
        hits = ranking[:, :top5] == targets.unsqueeze(1)
        correct += torch.stack([hits[:, 0].sum(), hits.sum()])
    top1_percent, top5_percent = (100.0 * correct / len(test_targets)).tolist()
    return top1_percent, top5_percent


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

    def update(self, side: str, features: Tensor, targets: Tensor) -> None:
        """Adds features (N, D) and targets (N,) to ``side``, "train" or "test"."""
        labelled = targets != -1
        getattr(self, f"{side}_features").append(features.detach()[labelled])
        getattr(self, f"{side}_targets").append(targets[labelled])

    def compute(self) -> tuple[float, float] | None:
        """Top-1 and top-5 accuracy in percent, None while a side has no labelled row."""
        sides = []
        for name in ("train_features", "train_targets", "test_features", "test_targets"):
            state = getattr(self, name)
            state = torch.cat(state) if isinstance(state, list) and state else state
            if not len(state):
                return None
            sides.append(state)
        return knn_accuracy(*sides, k=self.k, distance=self.distance, num_classes=self.num_classes)
