"""What the nearest rows of a bank vote for, for many k and temperatures at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from simco_methods.host.neighbours import Bank
from simco_methods.options import DISTANCES

# MiB where nothing is said.
_CPU_MEMORY, _DEVICE_MEMORY = 128, 1024


class Votes(NamedTuple):
    """What the neighbours of some queries vote for.

    Attributes:
        queries: which queries.
        k: how many neighbours of each.
        temperature: of the weights; None where there is none.
        votes: (queries, classes), to be read before the next ones are asked for.
    """

    queries: slice
    k: int
    temperature: float | None
    votes: Tensor


@torch.no_grad()
def knn_votes(
    train_features: Tensor,
    train_targets: Tensor,
    test_features: Tensor,
    *,
    ks: Sequence[int],
    temperatures: Sequence[float] = (0.07,),
    distance: str = "cosine",
    num_classes: int,
    memory_mib: float | None = None,
    own: Tensor | None = None,
) -> Iterator[Votes]:
    """The weighted votes for each class of all k and temperatures, from one search.

    A neighbour's weight is exp(similarity / temperature) for cosine, relative to that of the
    nearest, and 1 / distance for euclidean; however far, it is above 0.

    Args:
        train_features: (N, D) bank.
        train_targets: (N,) class numbers from 0.
        test_features: (M, D) queries.
        ks: numbers of neighbours, from 1 to N, and to N - 1 with ``own``.
        temperatures: of the cosine weights.
        distance: "cosine" or "euclidean".
        num_classes: classes that can be voted for.
        memory_mib: what the work may take beside these tensors, down to one query and 8 rows of
            the bank at a time; None for 128 on a CPU, else 1024.
        own: (M,) the row of the bank that is the query itself, and so no neighbour; -1 for none.

    Yields:
        Some of the queries, in order: each k and temperature of them, then the next.

    Raises:
        ValueError: an unknown distance.
    """
    if distance not in DISTANCES:
        raise ValueError(f"distance must be one of {', '.join(DISTANCES)}, got {distance!r}")
    if memory_mib is None:
        memory_mib = _CPU_MEMORY if train_features.device.type == "cpu" else _DEVICE_MEMORY
    memory = int(memory_mib * 2**20)
    ks = sorted(ks)
    bank = Bank(train_features, distance, ks[-1] + (own is not None), memory)
    rows = max(1, memory // (32 * num_classes))
    for first in range(0, len(test_features), bank.queries):
        asked = slice(first, first + bank.queries)
        queries = test_features[asked]
        score, neighbour = bank.nearest(queries)
        if own is not None:
            score, neighbour = _without(own[asked], score, neighbour)
        if distance == "euclidean":
            score = bank.distances(queries, neighbour)
        for part, near in zip(score.split(rows), neighbour.split(rows), strict=True):
            part_of = slice(first, first + len(part))
            voted = train_targets[near]
            for temperature in temperatures if distance == "cosine" else [None]:
                if temperature is None:
                    weight = (part + 1e-5).reciprocal_()
                else:  # relative, lest it overflows at low temperatures
                    weight = (part - part[:, :1]).div_(temperature).exp_()
                    weight.clamp_(min=torch.finfo(weight.dtype).tiny)
                votes = torch.zeros(len(part), num_classes, device=part.device)
                for low, k in pairwise([0, *ks]):
                    votes.scatter_add_(1, voted[:, low:k], weight[:, low:k])
                    yield Votes(part_of, k, temperature, votes)
            first += len(part)


def _without(own: Tensor, score: Tensor, neighbour: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and neighbours less the query itself, or less the last where it is not among them."""
    left_out = neighbour == own.unsqueeze(1)
    left_out[:, -1] |= ~left_out.any(dim=1)
    shape = len(neighbour), neighbour.shape[1] - 1
    return score[~left_out].view(shape), neighbour[~left_out].view(shape)


def hits(votes: Tensor, targets: Tensor) -> Tensor:
    """How many targets (M,) are among the one and the five classes with most votes, (2,).

    A class without a vote is not among them.

    Args:
        votes: (M, classes).
        targets: (M,).
    """
    rank = _rank(votes, targets)
    return torch.stack([(rank < top).sum() for top in (1, 5)])


def _rank(votes: Tensor, targets: Tensor) -> Tensor:
    """How many classes come before each target, (M,); all of them if it has no vote.

    Of classes with equal votes the lower number comes first.
    """
    num_classes = votes.shape[1]
    votes = votes.nan_to_num(nan=torch.inf, posinf=torch.inf)
    targets = targets.unsqueeze(1)
    own = votes.gather(1, targets.clamp(0, num_classes - 1))
    lower = torch.arange(num_classes, device=votes.device) < targets
    before = (votes > own).sum(dim=1) + lower.logical_and_(votes == own).sum(dim=1)
    voted = (targets >= 0) & (targets < num_classes) & (own > 0)
    return torch.where(voted.squeeze(1), before, max(num_classes, 5))
