"""The nearest images of queries among embedded ones, as a sheet and a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from simco_methods.analysis.finding import save_figure
from simco_methods.data.decode import UnreadableImage, printable, read_rgb
from simco_methods.embedding.listing import Listing
from simco_methods.embedding.neighbours import Tile, draw_sheet, nearest
from simco_methods.embedding.stored import StoredFeatures
from simco_methods.encoder import Encoder
from simco_methods.files import together, user_path, write_csv


@dataclass
class Query:
    """An image whose neighbours are looked for.

    Attributes:
        path: as it was given.
        picture: what it shows.
        inside: whether it lies in the folder that is searched, and is not its own neighbour.
    """

    path: Path
    picture: Image.Image
    inside: bool

    def check(self, neighbours: int, listing: Listing) -> None:
        """Raises ``ValueError`` if there are not so many other images."""
        others = listing.count - self.inside
        if neighbours > others:
            raise ValueError(
                f"neighbours={neighbours}: {printable(listing.folder)} has {others} image(s)"
                + (f" beside {printable(self.path)}" if self.inside else "")
            )


def read_queries(paths: Sequence[str], folder: Path) -> list[Query]:
    """The images to look for.

    Raises:
        UnreadableImage: one that cannot be read, by its path.
    """
    found = []
    for path in map(user_path, paths):
        inside = path.resolve().is_relative_to(folder.resolve())
        inside |= Path(os.path.abspath(path)).is_relative_to(os.path.abspath(folder))  # by a link
        found.append(Query(path, read_rgb(str(path)), inside))
    return found


def look_up(
    encoder: Encoder,
    queries: Sequence[Query],
    stored: StoredFeatures,
    folder: Path,
    out: Path,
    count: int,
) -> None:
    """Writes ``neighbours.png`` and ``neighbours.csv``.

    Args:
        encoder: that the features are of.
        queries: the images.
        stored: features of the folder's images.
        folder: of the images.
        out: where to write.
        count: neighbours of each.

    Raises:
        ValueError: fewer images than neighbours, after some could not be read.
    """
    features = torch.from_numpy(encoder.transform([query.picture for query in queries]))
    # One more: a query may be in the folder itself.
    similarities, rows = nearest(stored.parts(), features, count + 1)
    paths = stored.paths(rows.flatten().tolist())
    sheet, table = [], []
    for query, scores, numbers in zip(queries, similarities.tolist(), rows.tolist(), strict=True):
        this = os.path.realpath(query.path)
        found = [
            (paths[row], score)
            for row, score in zip(numbers, scores, strict=True)
            if os.path.realpath(folder / paths[row]) != this
        ][:count]
        if len(found) < count:
            raise ValueError(
                f"neighbours={count}: {len(found)} images of {printable(folder)} can be read"
            )
        tiles = [Tile(query.picture, [query.path.name, "query"], "black")]
        for rank, (path, score) in enumerate(found, 1):
            tiles.append(Tile(_picture(folder / path), [*Path(path).parts[-2:], f"{score:.3f}"]))
            table.append(
                {
                    "query": printable(query.path),
                    "rank": rank,
                    "path": printable(path),
                    "similarity": f"{score:.6f}",
                }
            )
        sheet.append(tiles)
    with together(out) as part:
        write_csv(part / "neighbours.csv", table)
        save_figure(draw_sheet(sheet, "nearest images by cosine"), part / "neighbours.png")
    print(f"neighbours: {printable(out / 'neighbours.png')}", flush=True)


def _picture(path: Path) -> Image.Image | None:
    try:
        return read_rgb(str(path))
    except UnreadableImage:  # gone since it was embedded
        return None
