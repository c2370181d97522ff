r"""Anchor logits of a batch or a bank with a gradient in closed form, one tile at a time.

:math:`a_i(\tau) = \operatorname{logsumexp}_j (s_{ij} / \tau) - s_{i+} / \tau` over the negatives is
all that a loss takes from the similarities. It is swept over tiles of them that stay in the cache,
and so is its gradient, :math:`\partial a_i / \partial s_{ij} = \hat p_{ij} / \tau`. Up to ``_KEPT``
similarities the tiles are kept for the backward; above that they are computed again, and N anchors
against M keys of D numbers take O((N + M) D + tile) of memory, forward and backward.

Everything runs on exponents of two: exp2 is three times as fast as exp on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from simco_methods.losses.kernel import wide_type

# Rows of a tile at most, and its entries: 1 MB in float32 on a CPU, 64 MB elsewhere.
_TILE = {"cpu": (1024, 2**18)}
_TILE_ELSEWHERE = (4096, 2**24)
# Entries of a similarity matrix that is kept for the backward: at most 16 MB in float32.
_KEPT = 2**22
# A matrix of at most 512 x 512 is computed in float64 if a temperature is below this.
_SMALL = 2**18
_LOW_TAU = 0.05
# Not in every torch from 2.1 on.
_is_compiling = getattr(torch.compiler, "is_compiling", lambda: False)


def contrast_logits(
    query: Tensor,
    key: Tensor,
    bank: Tensor | None,
    positive_index: Tensor | None,
    taus: Sequence[float],
    both_sides: bool = False,
) -> list[Tensor]:
    """a(tau) of each anchor at one or two temperatures.

    A gradient, which can be taken once, has the first temperature's only: the second one's says how
    much an anchor counts.

    With the batch as negatives only differences of an anchor's similarities matter, so they are
    taken relative to the keys' mean: where the keys are all alike, as in an untrained encoder,
    nothing cancels, and identical rows give exactly log N.

    float32 sums a dot product to about 1e-7, which is 1e-5 in the loss at tau 0.01. A small matrix
    is therefore computed in float64 if a temperature is that low; a large one is not.

    Args:
        query: (N, D) anchors, in float32 or better; the other tensors are of the same type.
        key: (N, D) positives.
        bank: (M, D) negatives; None for the other rows of ``key``.
        positive_index: (N,) row of ``bank`` at which each anchor's positive stands, where the bank
            is the batch of all processes; None for a bank that holds no positives.
        taus: temperatures, above 0.
        both_sides: also each key against the other queries, from the same similarities. Goes with
            neither ``bank`` nor ``positive_index``.

    Returns:
        For each temperature (N,), or (2, N) with ``both_sides``; if a temperature is below 0.05 in
        float64, where the device has it: a similarity of 1 known to 6e-8 is an a(0.01) known to
        6e-6, so no more may be lost.
    """
    keys = key if bank is None else bank
    # What there is N of is then in float64 for large matrices, too.
    wide = wide_type(query) if min(taus) < _LOW_TAU else query.dtype
    if len(query) * len(keys) <= _SMALL:
        query, key = query.to(wide), key.to(wide)
        bank = None if bank is None else bank.to(wide)
    distinct = tuple(dict.fromkeys(taus))
    apply = _AnchorLogits.apply
    if _is_compiling():
        # A loop over tiles is nothing to trace: torch.compile runs it as it is.
        apply = torch.compiler.disable(apply)
    logits = apply(query, key, bank, positive_index, distinct, both_sides, wide)
    logits = [logits[distinct.index(tau)] for tau in taus]
    # The second one has no gradient, also where it is the first.
    logits = [logits[0], *(logit.detach() for logit in logits[1:])]
    return logits if both_sides else [logit.squeeze(0) for logit in logits]


class _AnchorLogits(torch.autograd.Function):
    """(sides, N) of each temperature."""

    @staticmethod
    def forward(ctx, query, key, bank, positive_index, taus, both_sides, wide_dtype):
        keys, own, center, shift = key if bank is None else bank, key, None, None
        in_batch = bank is None or positive_index is not None
        if in_batch:
            center = keys.mean(dim=0)
            keys = keys - center
            own = keys if bank is None else key - center
        # From here on all similarities are over tau and exponents of two.
        scale = 1 / (taus[0] * math.log(2))
        wide = query.to(wide_dtype)
        positive = (wide * own.to(wide_dtype)).sum(dim=1).mul_(scale).unsqueeze(0)
        if both_sides:
            # k_j (q_i - mean q) is q_i (k_j - mean k) + (q_i - mean q) mean k, up to a number that
            # depends on j alone; what depends on i alone is nothing to the first side. So one
            # matrix serves both, and one positive.
            shift = ((wide - wide.mean(dim=0)) @ center.to(wide_dtype)).mul_(scale)
            positive = positive + shift
            shift = shift.to(query.dtype).unsqueeze(1)

        tiles = _Tiles(query, keys, scale, shift, bank is None, positive_index)
        keep = any(ctx.needs_input_grad) and len(query) * len(keys) <= _KEPT
        kept = []
        # log2 of the sums so far, and what makes the first temperature's exponents the others'.
        spread = positive.new_full((len(taus), 1 + both_sides, len(query)), -torch.inf)
        factors = [taus[0] / tau for tau in taus]
        for rows, columns in tiles:
            tile = tiles.similarities(rows, columns, keep)
            if keep:
                kept.append(tile)
            work = [tiles.buffer(number, tile.shape) for number in (1, 2)]
            _add_sums(tile, 1, factors, spread[:, 0, rows], *work)
            if both_sides:
                _add_sums(tile, 0, factors, spread[:, 1, columns], *work)

        ctx.save_for_backward(query, keys, own, positive_index, center, shift, spread[0], *kept)
        ctx.tau, ctx.scale, ctx.in_own_batch = taus[0], scale, bank is None
        logits = [
            torch.sub(spread[i], positive, alpha=factor).mul_(math.log(2))
            for i, factor in enumerate(factors)
        ]
        ctx.mark_non_differentiable(*logits[1:])
        return tuple(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, *_):
        # Only calls that write in place or to ``out``: autocast, if it is on here, leaves them be.
        query, keys, own, positive_index, center, shift, spread, *kept = ctx.saved_tensors
        needs_query, needs_key, needs_bank = ctx.needs_input_grad[:3]
        query_grad = torch.zeros_like(query) if needs_query else None
        key_grad = torch.zeros_like(query) if needs_key else None
        bank_grad = torch.zeros_like(keys) if needs_bank else None
        keys_grad = key_grad if ctx.in_own_batch else bank_grad
        # A similarity's weight is exp2(s - top) * pull: top is rounded, and pull makes up for it.
        top = spread.to(query.dtype)
        grad = grad / ctx.tau
        pull = (top - spread).exp2_().mul_(grad).to(query.dtype)
        # As the keys, the anchors are taken relative to their mean, so that little cancels in the
        # products. What the means are to be multiplied by is summed apart.
        anchors, query_rest, key_rest = query, None, None
        if ctx.in_own_batch and needs_key:
            anchors_center = query.mean(dim=0)
            anchors, key_rest = query - anchors_center, grad[0].neg()
        if shift is not None and needs_query:
            query_rest = grad[1].neg()
        tiles = _Tiles(query, keys, ctx.scale, shift, ctx.in_own_batch, positive_index)
        needed = query_grad is not None or keys_grad is not None
        for number, (rows, columns) in enumerate(tiles if needed else ()):
            tile = kept[number] if kept else tiles.similarities(rows, columns)
            weight = torch.sub(tile, top[0, rows, None], out=tiles.buffer(1, tile.shape))
            weight.exp2_().mul_(pull[0, rows, None])
            if key_rest is not None:
                key_rest[columns].add_(weight.sum(dim=0))
            if shift is not None:
                other = torch.sub(tile, top[1, columns], out=tiles.buffer(2, tile.shape))
                other.exp2_().mul_(pull[1, columns])
                if query_rest is not None:
                    query_rest[rows].add_(other.sum(dim=1))
                weight.add_(other)
            if query_grad is not None:
                query_grad[rows].addmm_(weight, keys[columns])
            if keys_grad is not None:
                keys_grad[columns].addmm_(weight.T, anchors[rows])
        grad = grad.sum(dim=0).to(query.dtype).unsqueeze(1)
        if query_grad is not None:
            query_grad.addcmul_(own, grad, value=-1)
            if query_rest is not None:
                query_grad.addr_(query_rest.to(query.dtype), center)
        if key_grad is not None:
            key_grad.addcmul_(anchors, grad, value=-1)
            if key_rest is not None:
                key_grad.addr_(key_rest.to(query.dtype), anchors_center)
        return query_grad, key_grad, bank_grad, None, None, None, None


class _Tiles:
    """Similarities times ``scale``, and ``shift`` (N, 1) if there is one, tile by tile.

    -inf stands where an anchor's positive would.
    """

    def __init__(self, query, keys, scale, shift, in_own_batch, positive_index):
        self.query, self.keys, self.scale, self.shift = query, keys, scale, shift
        self.in_own_batch, self.positive_index = in_own_batch, positive_index
        rows, entries = _TILE.get(query.device.type, _TILE_ELSEWHERE)
        self.rows = min(rows, len(query))
        self.columns = min(max(entries // self.rows, 1), len(keys))
        # Written over tile by tile: fresh memory would cost more than what is computed in it.
        self.buffers = {}

    def __iter__(self) -> Iterator[tuple[slice, slice]]:
        for row in range(0, len(self.query), self.rows):
            rows = slice(row, min(row + self.rows, len(self.query)))
            for column in range(0, len(self.keys), self.columns):
                yield rows, slice(column, min(column + self.columns, len(self.keys)))

    def buffer(self, number: int, shape: tuple[int, int]) -> Tensor:
        if number not in self.buffers:
            self.buffers[number] = self.query.new_empty(self.rows * self.columns)
        return self.buffers[number][: shape[0] * shape[1]].view(shape)

    def similarities(self, rows: slice, columns: slice, keep: bool = False) -> Tensor:
        query, keys = self.query[rows], self.keys[columns]
        shape = len(query), len(keys)
        tile = query.new_empty(shape) if keep else self.buffer(0, shape)
        # beta=0: what the tile holds is not read.
        start, beta = (tile, 0) if self.shift is None else (self.shift[rows], 1)
        torch.addmm(start, query, keys.T, beta=beta, alpha=self.scale, out=tile)
        if self.in_own_batch:
            offset = rows.start - columns.start
            if -len(query) < offset < len(keys):
                tile.diagonal(offset).fill_(-torch.inf)
        elif self.positive_index is not None:
            column = self.positive_index[rows].unsqueeze(1) - columns.start
            inside = (column >= 0) & (column < len(keys))
            column = column.clamp(0, len(keys) - 1)
            tile.scatter_(1, column, tile.gather(1, column).masked_fill_(inside, -torch.inf))
        return tile


def _add_sums(
    tile: Tensor, dim: int, factors: list[float], spread: Tensor, exponent: Tensor, power: Tensor
) -> None:
    """Adds the tile's sums along ``dim`` to ``spread``, (T, n) log2 of those so far.

    ``exponent`` and ``power`` are memory to work in.
    """
    largest = tile.amax(dim=dim, keepdim=True)
    if tile.shape[dim] == 1:
        # It may be left out: not inf - inf.
        largest.clamp_(min=torch.finfo(tile.dtype).min)
    torch.sub(tile, largest, out=exponent)
    largest = largest.view(-1)
    total = largest.new_empty(len(factors), len(largest))
    for i, factor in enumerate(factors):
        scaled = exponent if factor == 1 else torch.mul(exponent, factor, out=power)
        torch.sum(torch.exp2(scaled, out=power), dim=dim, out=total[i])
    total = total.to(spread.dtype).log2_()
    for i, factor in enumerate(factors):
        total[i].add_(largest, alpha=factor)
    torch.logaddexp2(spread, total, out=spread)
