"""One pass over a dictionary gives every dictionary size and temperature, one tile at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from simco_methods.losses.kernel import (
    check_bank,
    check_pairs,
    check_temperature,
    common_precision,
    full_precision,
)

# Anchors and keys of a tile. On a CPU a tile and its exponentials stay in the cache.
_TILE = {"cpu": (128, 1024), "cuda": (4096, 8192)}


@dataclass
class Sweep:
    """What :func:`sweep_dictionary` finds, for T temperatures, S sizes and N anchors.

    Attributes:
        temperatures, sizes: the two axes.
        logit: (T, S, N) float64, a(tau) over the first ``size`` keys: its sigmoid is the anchor
            hardness W, its softplus InfoNCE.
        negative_entropy: (T, S, N) float64, entropy of the weights of the negatives in the vector
            component, divided by log(size): 1 where all count alike.
    """

    temperatures: list[float]
    sizes: list[int]
    logit: Tensor
    negative_entropy: Tensor

    def at(self, temperatures: Sequence[float]) -> Sweep:
        """The part of some of the temperatures, in their order."""
        chosen = [self.temperatures.index(tau) for tau in temperatures]
        logit, entropy = self.logit[chosen], self.negative_entropy[chosen]
        return Sweep(list(temperatures), self.sizes, logit, entropy)

    @property
    def hardness(self) -> Tensor:
        """(T, S, N), W = 1 - p_+ of each anchor (Eq. 5)."""
        return torch.sigmoid(self.logit)

    def relative_penalty(self, group: int) -> Tensor:
        """(T, S, G, group), Eq. 8's r_+ within each ``group`` consecutive anchors.

        From log W, so that it holds where every W is tiny. Anchors left over are dropped.
        """
        groups = self.logit.shape[-1] // group
        logit = self.logit[..., : groups * group].unflatten(-1, (groups, group))
        return torch.softmax(F.logsigmoid(logit), dim=-1)


@torch.no_grad()
@full_precision
def sweep_dictionary(
    query: Tensor,
    key: Tensor,
    dictionary: Tensor,
    sizes: Sequence[int],
    temperatures: Sequence[float],
    tile: tuple[int, int] | None = None,
) -> Sweep:
    r"""Anchor logits and negatives' entropies for all ``sizes`` and ``temperatures``.

    Each similarity is computed once, and no more than one tile of them is held. With
    :math:`x_j = (s_j - \max s) / \tau` an anchor and temperature need only
    :math:`Z = \sum e^{x_j}` and :math:`E = \sum x_j e^{x_j}`, which add up over tiles: then
    :math:`a(\tau) = \log Z + (\max s - s_+) / \tau` and the entropy is :math:`\log Z - E / Z`.

    Args:
        query: anchors, (N, D), L2-normalised.
        key: positives, (N, D), L2-normalised.
        dictionary: (K, D), L2-normalised; a size m stands for its first m rows.
        sizes: numbers of keys, each from 2 to K.
        temperatures: each finite and above 0.
        tile: anchors and keys of a tile; None for what suits the device.

    Raises:
        ValueError: shapes that do not fit, an empty dictionary, a size that is not from 2 to K, or
            a temperature that is not finite and above 0.
    """
    check_pairs(query, key)
    check_bank("dictionary", dictionary, query)
    for tau in temperatures:
        check_temperature(temperature=tau)
    sizes = sorted(set(sizes))
    check_sizes(sizes, len(dictionary))
    query, key, dictionary = common_precision(query, key, dictionary)
    rows, columns = tile or _TILE.get(query.device.type, (512, 4096))
    edges = _edges(sizes, columns)
    parts = [
        _sweep_rows(query[i : i + rows], key[i : i + rows], dictionary, sizes, temperatures, edges)
        for i in range(0, len(query), rows)
    ]
    logit, entropy = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
    return Sweep(list(temperatures), sizes, logit, entropy)


def default_sizes(keys: int) -> list[int]:
    """Powers of 4 from 64, and all the ``keys``."""
    return [*(4**power for power in range(3, 12) if 4**power < keys), keys]


def check_sizes(sizes: Sequence[int], keys: int) -> None:
    """Raises ``ValueError`` unless there are sizes, each from 2 to the ``keys`` at hand."""
    if not sizes:
        raise ValueError("no dictionary size was given")
    for size in sizes:
        if not 2 <= size <= keys:
            raise ValueError(f"a dictionary of {size} keys was asked for; 2 to {keys} can be had")


def _edges(sizes: Sequence[int], columns: int) -> list[tuple[int, int]]:
    """Tiles' first and last key: at most ``columns`` of them, none across one of the sizes."""
    cuts = sorted({0, *sizes, *range(0, sizes[-1], columns)})
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def _sweep_rows(query, key, dictionary, sizes, temperatures, edges) -> tuple[Tensor, Tensor]:
    wide = torch.float32 if query.device.type == "mps" else torch.float64
    positive = (query.to(wide) * key.to(wide)).sum(dim=1)
    taus = torch.tensor(temperatures, dtype=wide, device=query.device).unsqueeze(1)
    shape = (len(temperatures), len(query))
    total = torch.zeros(shape, dtype=wide, device=query.device)  # Z
    moment = torch.zeros_like(total)  # E
    largest = torch.full((len(query),), -torch.inf, dtype=query.dtype, device=query.device)
    logits, entropies = [], []
    for first, last in edges:
        similarity = query @ dictionary[first:last].T
        top = torch.maximum(largest, similarity.amax(dim=1))
        # The sums so far are relative to the old maximum: e^(x + shift) and (x + shift) e^(x + s).
        shift = ((largest - top).to(wide) / taus).clamp(min=-1e6)
        moment = (moment + shift * total) * shift.exp()
        total = total * shift.exp()
        similarity -= top.unsqueeze(1)
        largest = top
        for number, tau in enumerate(temperatures):
            exponent = similarity / tau
            power = exponent.exp()
            total[number] += power.sum(dim=1)
            moment[number] += torch.einsum("nk,nk->n", power, exponent)
        if last in sizes:
            log_total = total.log()
            logits.append(log_total + (largest.to(wide) - positive) / taus)
            entropies.append((log_total - moment / total) / math.log(last))
    return torch.stack(logits, dim=1), torch.stack(entropies, dim=1)
