"""``data.on_error=skip``: images that cannot be read are left out, the same ones of every start."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image

from simco_methods.data.decode import UnreadableImage, printable
from simco_methods.data.images import ImageSet
from simco_methods.data.resident import by_threads
from simco_methods.files import lock, write_json
from simco_methods.progress import Progress

_SHOWN = 3  # names in a line
_WARNING = threading.Lock()  # of the threads that read at once
Found = TypeVar("Found")


@dataclass
class SkippingImages(ImageSet):
    """Files of which all could be read. Should one no longer be, the next takes its place.

    So batches stay full, and no process waits for another. Each image is warned of once.
    """

    def __post_init__(self):
        # In memory that DataLoader's workers share.
        self._lost = torch.zeros(len(self), dtype=torch.bool).share_memory_()

    def take(self, index: int) -> tuple[Image.Image, int]:
        """As of an :class:`ImageSet`, or of the next image that can be read, and its label."""
        row, picture = self._next(index, self.load)
        return picture, int(self.labels[row])

    def size(self, index: int) -> tuple[int, int]:
        return self._next(index, super().size)[1]

    def _next(self, index: int, read: Callable[[int], Found]) -> tuple[int, Found]:
        for row in range(index, index + len(self)):
            row %= len(self)
            try:
                return row, read(row)
            except UnreadableImage as error:
                self._warn(row, error)
        raise UnreadableImage.of(self.images[index], "nor can any other image be read any more")

    def _warn(self, row: int, error: UnreadableImage) -> None:
        with _WARNING:
            if self._lost[row]:
                return
            self._lost[row] = True
            count = int(self._lost.sum())
        warnings.warn(
            f"{error}; the next image takes its place (number {count:,} of {len(self):,} that can "
            "no longer be read)",
            stacklevel=4,
        )


def leave_out_unreadable(
    images: ImageSet, known: Mapping[str, str] | None = None
) -> tuple[ImageSet, dict[str, str]]:
    """The images that can be read: each file is decoded once, by threads.

    Args:
        images: arrays in memory are left as they are.
        known: what an earlier call returned, to leave out the same ones without looking again.

    Returns:
        The images, and of those left out the name (see :meth:`ImageSet.names`) and the reason.

    Raises:
        UnreadableImage: no image can be read.
    """
    if isinstance(images.images, np.ndarray):
        return images, {}
    names = images.names()
    if known is None:
        found: dict[int, str] = {}

        def check(row: int) -> None:
            try:
                images.load(row)
            except UnreadableImage as error:
                found[row] = error.why

        with Progress("checking that images can be read", len(images)) as progress:
            by_threads(check, len(images), progress)
        known = {names[row]: found[row] for row in sorted(found)}
    rows = np.flatnonzero([name not in known for name in names])
    if not len(rows):
        raise UnreadableImage.of(
            images.images[0],
            f"{known[names[0]]}; nor can any other of the {len(images):,} images be read",
        )
    kept = images.select(rows)
    kept = SkippingImages(kept.images, kept.labels, kept.classes, kept.notes)
    return kept, dict(known)


def left_out_line(left_out: Mapping[str, str], total: int) -> str:
    """``2 of 1,000 images cannot be read and are left out: a.jpg (it is empty), ...``."""
    shown = [f"{printable(name)} ({why})" for name, why in list(left_out.items())[:_SHOWN]]
    if len(left_out) > _SHOWN:
        shown.append(f"and {len(left_out) - _SHOWN:,} more")
    one = len(left_out) == 1
    return (
        f"{len(left_out):,} of {total:,} images cannot be read and {'is' if one else 'are'} left "
        f"out: {', '.join(shown)}"
    )


def readable_only(
    sets: Sequence[ImageSet | None], record: Path
) -> tuple[list[ImageSet | None], list[str]]:
    """:func:`leave_out_unreadable` of each set: once, whatever a run's processes and starts.

    Args:
        sets: the training and the validation images; None stays None.
        record: a JSON file of the run. The first process that comes here writes what is left out
            of the images of each :meth:`ImageSet.digest`, the others wait for it and read that.

    Returns:
        The sets without their unreadable images, and a line for each that has some.

    Raises:
        UnreadableImage: a set of which no image can be read.
    """
    if all(images is None or isinstance(images.images, np.ndarray) for images in sets):
        return list(sets), []
    kept, lines = [], []
    held = lock(record.with_name(f".{record.name}.lock"), wait=True)
    try:
        known = json.loads(record.read_text("utf-8")) if record.is_file() else {}
        for images in sets:
            if images is None:
                kept.append(None)
                continue
            digest = images.digest()
            some, known[digest] = leave_out_unreadable(images, known.get(digest))
            kept.append(some)
            if known[digest]:
                lines.append(left_out_line(known[digest], len(images)))
        write_json(record, known)
    finally:
        os.close(held)
    return kept, lines
