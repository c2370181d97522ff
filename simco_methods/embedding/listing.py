"""The images of a folder, one after the other, however many there are."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from simco_methods.data.decode import printable
from simco_methods.data.folders import folder_images, image_files, left_out_lines
from simco_methods.progress import track


def check_apart(out: Path, folder: Path) -> None:
    """Raises ``ValueError`` where results in ``out`` would lie among the images of ``folder``."""
    if out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"the results would lie among the images: {printable(out)} is in {printable(folder)}; "
            "set out=FOLDER"
        )


class Listing:
    """The paths of a folder's images, relative to it, in sorted order.

    They are walked through anew each time and never kept: beside the names of one subfolder at a
    time there is nothing of the folder in memory.

    Args:
        folder: where they are, at any depth.

    Attributes:
        count: how many there were in the first walk.
        digest: 16 hex digits of their paths, sizes and times of change in the first walk.
        notes: a line with the number of other files in it, if there are any.

    Raises:
        FileNotFoundError: no folder, or no image in it.
        OSError: a folder in it that cannot be listed.
    """

    def __init__(self, folder: Path):
        self.folder, self.count = folder, 0
        if folder.is_dir():
            self.count = sum(1 for _ in track(self._walk(), "listing images"))
        if not self.count:
            folder_images(folder, labelled=False)  # says what is wrong
        self.digest = self._found.hexdigest()[:16]
        self.notes = left_out_lines(folder, self._others)

    def __iter__(self) -> Iterator[str]:
        """The paths.

        Raises:
            ValueError: at the end of a walk that has not seen what the first one saw.
        """
        yield from self._walk()
        if self._found.hexdigest()[:16] != self.digest:
            raise ValueError(
                f"the images in {printable(self.folder)} changed while they were read: the same "
                "command begins anew with those that are there now"
            )

    def _walk(self) -> Iterator[str]:
        self._found, self._others = hashlib.sha256(), Counter()
        start = len(os.path.join(self.folder, ""))
        for path in image_files(self.folder, self._others):
            try:
                status = os.stat(path)
                what = status.st_size, status.st_mtime_ns
            except OSError:  # a link to nothing; whoever reads it will say so
                what = ()
            name = path[start:]
            self._found.update(f"{name}\0{what}\n".encode(errors="surrogateescape"))
            yield name
