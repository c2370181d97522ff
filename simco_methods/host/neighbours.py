"""The nearest rows of a bank of features, within a set memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# On CPUs a larger tile than this gains nothing.
_CPU_ROWS, _CPU_COLUMNS = 512, 16384
# Columns that are looked through together, see _top.
_GROUP = 8


class Bank:
    """Finds the nearest rows of a bank, a tile of it and a tile of the queries at a time.

    Of the memory a quarter is for the tile of the bank, a quarter for the similarities, and what is
    left for the rest.

    Args:
        features: (N, D), of any floating type.
        distance: "cosine" or "euclidean".
        k: how many rows are to be found, at most N.
        memory: bytes beside the features, down to one query and 8 rows of the bank at a time.

    Attributes:
        queries: how many queries can be looked up in one call.
    """

    def __init__(self, features: Tensor, distance: str, k: int, memory: int):
        self.features, self.cosine, self.k = features, distance == "cosine", k
        (count, dim), device = features.shape, features.device
        most = (_CPU_ROWS, _CPU_COLUMNS) if device.type == "cpu" else (count, count)
        columns = max(_GROUP, min(most[1], memory // (16 * dim)))
        # Tiles of equal size, so that the last one is no sliver.
        tiles = math.ceil(count / columns)
        columns = min(count, math.ceil(count / (tiles * _GROUP)) * _GROUP)
        rows = max(1, min(most[0], memory // (16 * columns + 64 * dim + 448 * k)))
        self.queries = max(rows, memory // (192 * k))
        self.exact_rows = max(1, memory // (32 * k * dim))
        self.tile, self.query, self.similarity = (
            torch.empty(shape, device=device)
            for shape in ((columns, dim), (rows, dim), (rows * columns,))
        )
        # Distances do not depend on the origin; near it the fewest digits are lost.
        self.center = None if self.cosine else features.sum(dim=0, dtype=torch.float32) / count

    def nearest(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (M, k), the highest first, and the rows of the bank that have them.

        The score is the cosine, or a number a query minus the squared distance.
        """
        scores = torch.full((len(queries), self.k), -torch.inf, device=queries.device)
        neighbours = torch.zeros(scores.shape, dtype=torch.long, device=queries.device)
        first = 0
        for part in self.features.split(len(self.tile)):
            tile = self._load(part, self.tile)
            offset = None if self.cosine else -torch.linalg.vector_norm(tile, dim=1).square()
            parts = (t.split(len(self.query)) for t in (queries, scores, neighbours))
            for rows in zip(*parts, strict=True):
                self._update(tile, offset, first, *rows)
            first += len(part)
        return scores, neighbours

    def _update(
        self,
        tile: Tensor,
        offset: Tensor | None,
        first: int,
        queries: Tensor,
        scores: Tensor,
        neighbours: Tensor,
    ) -> None:
        """Takes in what is nearer in a tile, whose first row is row ``first`` of the bank."""
        query = self._load(queries, self.query)
        similarity = self.similarity[: len(query) * len(tile)].view(len(query), len(tile))
        if offset is None:
            torch.mm(query, tile.T, out=similarity)
        else:
            torch.addmm(offset, query, tile.T, alpha=2, out=similarity)
        found, columns = _top(similarity, min(self.k, len(tile)))
        best, order = torch.cat([scores, found], dim=1).topk(self.k)
        scores.copy_(best)
        neighbours.copy_(torch.cat([neighbours, columns + first], dim=1).gather(1, order))

    def _load(self, rows: Tensor, buffer: Tensor) -> Tensor:
        """The rows in float32, normalised or centred."""
        rows = buffer[: len(rows)].copy_(rows)
        if self.center is not None:
            return rows.sub_(self.center)
        return rows.div_(torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min_(1e-12))

    def distances(self, queries: Tensor, neighbours: Tensor) -> Tensor:
        """Euclidean distances (M, k), from differences: the scores of duplicates are not exact."""
        parts = (t.split(self.exact_rows) for t in (queries, neighbours))
        found = []
        for query, rows in zip(*parts, strict=True):
            differences = self.features[rows].float().sub_(query.float().unsqueeze(1))
            found.append(torch.linalg.vector_norm(differences, dim=2))
        return torch.cat(found)


def _top(similarity: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``topk``, faster: the k highest entries are in the k groups of columns with the highest."""
    columns = similarity.shape[1]
    groups = columns // _GROUP
    if columns % _GROUP or groups < 4 * k:
        return similarity.topk(k)
    highest = similarity.unflatten(1, (_GROUP, groups)).amax(dim=1)
    chosen = highest.topk(k, sorted=False).indices.unsqueeze(1)
    members = torch.arange(0, columns, groups, device=similarity.device).unsqueeze(1)
    members = (chosen + members).flatten(1)
    values, order = similarity.gather(1, members).topk(k)
    return values, members.gather(1, order)
