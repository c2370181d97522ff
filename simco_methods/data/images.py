"""Sets of images with labels: arrays in memory, or files on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from PIL import Image

from simco_methods.data.decode import printable, read_rgb, read_size

UNLABELLED = -1
_HASHED = 4096  # images that are hashed at a time


@dataclass
class ImageSet:
    """Images with one class number each, -1 where there is none.

    Attributes:
        images: a uint8 array (N, H, W, 3), or the N files' paths.
        labels: (N,) int64.
        classes: the classes' names, empty if nothing is labelled.
        notes: what is to be said of them, such as files that are left out, a line each.
    """

    images: np.ndarray | Sequence[str]
    labels: np.ndarray
    classes: list[str]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, index: int) -> Image.Image:
        """The RGB image.

        Raises:
            UnreadableImage: see :func:`~simco_methods.data.decode.read_rgb`.
        """
        image = self.images[index]
        return read_rgb(image) if isinstance(image, str) else Image.fromarray(image)

    def size(self, index: int) -> tuple[int, int]:
        """Height and width, of a file from its header.

        Raises:
            UnreadableImage: see :func:`~simco_methods.data.decode.read_size`.
        """
        image = self.images[index]
        return read_size(image) if isinstance(image, str) else image.shape[:2]

    def take(self, index: int) -> tuple[Image.Image, int]:
        """The RGB image and its label, for a place in a batch."""
        return self.load(index), int(self.labels[index])

    def names(self) -> list[str]:
        """The files' paths from the innermost folder that holds them all."""
        common = os.path.commonprefix([min(self.images), max(self.images)])
        start = common.rfind(os.sep) + 1
        return [path[start:] for path in self.images]

    def digest(self) -> str:
        """16 hex digits of what the set is: the same for files that were moved with their folder.

        Of files their names, whatever they hold; of arrays all pixels; and the labels and classes.
        """
        found = hashlib.sha256()
        if isinstance(self.images, np.ndarray):
            found.update(repr((self.images.shape, self.images.dtype.str)).encode())
            for first in range(0, len(self), _HASHED):
                found.update(np.ascontiguousarray(self.images[first : first + _HASHED]))
        else:
            found.update("\0".join(self.names()).encode(errors="surrogatepass"))
        found.update(np.ascontiguousarray(self.labels, dtype="<i8"))
        found.update("\0".join(self.classes).encode(errors="surrogatepass"))
        return found.hexdigest()[:16]

    def select(self, rows: np.ndarray) -> ImageSet:
        """The images at ``rows``, in that order."""
        images = self.images
        chosen = images[rows] if isinstance(images, np.ndarray) else [images[i] for i in rows]
        return replace(self, images=chosen, labels=self.labels[rows])

    def first_per_class(self, count: int) -> ImageSet:
        """The first ``count`` images of each class, in order.

        Raises:
            ValueError: a class that has fewer.
        """
        if not self.classes:
            raise ValueError("images without labels cannot be counted by class")
        rows = []
        for number, name in enumerate(self.classes):
            found = np.flatnonzero(self.labels == number)
            if len(found) < count:
                raise ValueError(
                    f"class {printable(name)} has {len(found)} images, {count} were asked for"
                )
            rows.append(found[:count])
        return self.select(np.sort(np.concatenate(rows)))

    def fraction(self, share: float) -> ImageSet:
        """A stratified share of the images, the same as solo-learn's ``data.fraction``."""
        from sklearn.model_selection import train_test_split

        stratify = self.labels if self.classes else None
        rows, _ = train_test_split(
            np.arange(len(self)), train_size=share, stratify=stratify, random_state=42
        )
        return self.select(rows)
