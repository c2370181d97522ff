"""The nearest images of some, among those that are shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image

from simco_methods.analysis.finding import save_figure
from simco_methods.embedding.neighbours import Tile, draw_sheet, nearest
from simco_methods.files import write_csv
from simco_methods.looking.images import Shown
from simco_methods.page import image, text

_SAME, _OTHER = "#2ca02c", "#d62728"


def make_neighbours(
    shown: Shown, queries: Sequence[tuple[str, Image.Image]], count: int, folder: Path
) -> list[str]:
    """Writes ``neighbours.png`` and ``neighbours.csv``; returns the parts of a page.

    Args:
        shown: the images that are searched.
        queries: path and picture of each, none for some of the shown.
        count: of each; fewer where there are fewer.
        folder: where to write.

    Raises:
        ValueError: nothing to be a neighbour.
    """
    if len(shown) < 2:
        raise ValueError(f"neighbours take 2 images or more, there are {len(shown)}")
    examples = [] if queries else shown.examples()
    if queries:
        pictures = [picture for _, picture in queries]
        features = torch.from_numpy(shown.encoder.transform(pictures))
    else:
        features = shown.features[examples]
    similarities, rows = nearest([shown.features], features, min(count + 1, len(shown)))
    sheet, table = [], []
    for number, (scores, found) in enumerate(
        zip(similarities.tolist(), rows.tolist(), strict=True)
    ):
        if queries:
            name, picture = queries[number]
            own, kind = _row_of(shown, name), None
            lead = Tile(picture, [Path(name).name, "query"], "black")
        else:
            own = examples[number]
            name, kind = shown.names[own], shown.class_of(own)
            lead = Tile(shown.images.load(own), [name, kind or "query"], "black")
        pairs = [(row, score) for row, score in zip(found, scores, strict=True) if row != own]
        tiles = [lead]
        for rank, (row, score) in enumerate(pairs[:count], 1):
            its = shown.class_of(row)
            frame = None if kind is None or its is None else (_SAME if its == kind else _OTHER)
            lines = [its or shown.names[row], f"{score:.3f}"]
            tiles.append(Tile(shown.images.load(row), lines, frame))
            line = {"query": name, "rank": rank, "image": shown.names[row], "class": its}
            table.append({**line, "similarity": f"{score:.6f}"})
        sheet.append(tiles)
    write_csv(folder / "neighbours.csv", table)
    save_figure(draw_sheet(sheet), folder / "neighbours.png")
    note = f"Left an image, right of it the nearest by cosine among the {len(shown):,} shown."
    fewest = min(len(tiles) - 1 for tiles in sheet)
    if fewest < count:
        note += f" There are {fewest} beside it, {count} were asked for."
    if any(tile.colour == _SAME or tile.colour == _OTHER for tiles in sheet for tile in tiles):
        note += " Green frames are of its class, red ones of another."
    return [f"<p>{text(note)}</p>", image(folder / "neighbours.png")]


def _row_of(shown: Shown, path: str) -> int | None:
    """The row of a file that is among the shown."""
    this = os.path.realpath(path)
    for row, other in enumerate(shown.images.images):
        if isinstance(other, str) and os.path.realpath(other) == this:
            return row
    return None
