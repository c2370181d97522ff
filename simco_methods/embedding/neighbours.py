"""The nearest images of others, and sheets on which they can be looked at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from simco_methods.analysis.finding import canvas
from simco_methods.data.decode import printable
from simco_methods.host.neighbours import Bank
from simco_methods.wording import shortened

_MEMORY = 2**28  # bytes for similarities
_WIDE = 11  # tiles side by side
_PIXELS = 192  # of a tile's longer side, at most
_LETTERS = 18  # that fit below a tile


def nearest(parts: Iterable[Tensor], queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cosine similarities (M, k), the highest first, and the rows that have them.

    Args:
        parts: the rows, (N, F) at a time.
        queries: (M, F).
        count: k; fewer are returned where there are fewer rows.
    """
    scores = torch.empty(len(queries), 0)
    found = torch.empty(len(queries), 0, dtype=torch.long)
    first = 0
    for part in parts:
        bank = Bank(part, "cosine", min(count, len(part)), _MEMORY)
        similarity, rows = bank.nearest(queries)
        scores, order = torch.cat([scores, similarity], dim=1).sort(descending=True, stable=True)
        found = torch.cat([found, rows + first], dim=1).gather(1, order)[:, :count]
        scores = scores[:, :count]
        first += len(part)
    return scores, found


@dataclass
class Tile:
    """A picture on a sheet.

    Attributes:
        picture: None for one that could not be read.
        lines: below it.
        colour: of its frame, None for none.
    """

    picture: Image.Image | None
    lines: Sequence[str]
    colour: str | None = None


def draw_sheet(rows: Sequence[Sequence[Tile]], title: str = "") -> Figure:
    """Tiles in rows; the first of a row stands apart, and long rows go on below the others of it.

    Args:
        rows: of one tile or more each.
        title: above.
    """
    wide = min(_WIDE, max(len(row) for row in rows))
    lines = max(len(tile.lines) for row in rows for tile in row)
    step = 1.06 + 0.15 * lines  # from a line of tiles to the next, in widths of a tile
    deep = [max(1, math.ceil((len(row) - 1) / max(1, wide - 1))) for row in rows]
    height = sum(deep) * step
    figure = canvas(1.15 * (wide + 0.3) + 0.2, 1.15 * height + 0.2 + 0.35 * bool(title))
    axes = figure.subplots()
    axes.set(xlim=(-0.05, wide + 0.3), ylim=(height, -0.05), aspect="equal")
    axes.axis("off")
    if title:
        axes.set_title(title, fontsize=9, loc="left")
    top = 0.0
    for row, depth in zip(rows, deep, strict=True):
        _draw_tile(axes, row[0], 0.0, top)
        for number, tile in enumerate(row[1:]):
            line, column = divmod(number, wide - 1)
            _draw_tile(axes, tile, 1.25 + column, top + line * step)
        top += depth * step
    return figure


def _draw_tile(axes, tile: Tile, left: float, top: float) -> None:
    width = height = 0.96
    if tile.picture is None:
        axes.text(left + width / 2, top + height / 2, "not readable", fontsize=7, ha="center")
    else:
        picture = tile.picture.copy()
        picture.thumbnail((_PIXELS, _PIXELS))
        longer = max(picture.size)
        width, height = (0.96 * side / longer for side in picture.size)
    x, y = left + (0.96 - width) / 2, top + 0.96 - height
    extent = (x, x + width, y + height, y)
    if tile.picture is not None:
        axes.imshow(picture, extent=extent, interpolation="nearest", aspect="equal")
    if tile.colour:
        axes.plot(
            [x, x + width, x + width, x, x],
            [y, y, y + height, y + height, y],
            color=tile.colour,
            linewidth=2,
        )
    text = "\n".join(shortened(printable(line), _LETTERS) for line in tile.lines)
    axes.text(left + 0.48, top + 1.0, text, fontsize=7, ha="center", va="top")
