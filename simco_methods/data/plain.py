"""Images without augmentation, to validate on and for the kNN bank, made once and kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from simco_methods.data.images import ImageSet
from simco_methods.data.resident import by_threads, check_fits
from simco_methods.data.transforms import Preprocessing
from simco_methods.progress import Progress


def plain_batches(
    images: ImageSet,
    rows: Sequence[int],
    preprocessing: Preprocessing,
    batch_size: int,
    device: torch.device,
    processes: int = 1,
) -> PlainLoader:
    """The images at ``rows`` without augmentation, made once and kept on the device.

    Raises:
        DoesNotFit: more than a third of the free memory.
        UnreadableImage: a file that cannot be read as an image, by its path.
    """
    size = preprocessing.size
    check_fits(len(rows), size, size, device, processes)
    pixels = torch.empty(len(rows), 3, size, size, dtype=torch.uint8)
    labels = torch.empty(len(rows), dtype=torch.int64)

    def make(number: int) -> None:
        picture, labels[number] = images.take(rows[number])
        view = preprocessing.view(picture)
        pixels[number] = torch.from_numpy(np.array(view)).permute(2, 0, 1)

    with Progress("reading evaluation images", len(rows)) as progress:
        by_threads(make, len(rows), progress)
    return PlainLoader(pixels.to(device), labels.to(device), preprocessing, batch_size)


class PlainLoader:
    """Batches ``[images, labels]`` of what lies on the device.

    Args:
        pixels: (N, 3, S, S) uint8.
        labels: (N,).
        preprocessing: whose normalisation they get.
        batch_size: images at a time; the last batch has what is left.
    """

    def __init__(
        self, pixels: Tensor, labels: Tensor, preprocessing: Preprocessing, batch_size: int
    ):
        self.pixels, self.labels = pixels, labels
        self.preprocessing, self.batch_size = preprocessing, batch_size

    def __len__(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def __iter__(self) -> Iterator[list[Tensor]]:
        pairs = zip(
            self.pixels.split(self.batch_size), self.labels.split(self.batch_size), strict=True
        )
        for pixels, labels in pairs:
            yield [self.preprocessing.batch(pixels), labels]
