"""The ``device`` loader: the images lie on the device, a batch's views are made there at once.

The order is that of :class:`~simco_methods.data.loaders.EpochSampler` and the draws are those of
:mod:`~simco_methods.data.draws`, as with workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from simco_methods.data.decode import UnreadableImage, printable
from simco_methods.data.images import ImageSet
from simco_methods.data.loaders import EpochSampler
from simco_methods.data.parameters import Parameters
from simco_methods.data.views import ViewMaker
from simco_methods.machine import free_memory
from simco_methods.progress import Progress, track

_SHARE = 1 / 3  # of the free memory that images may take
_CPU_PIXELS = 128**2  # of an image at most: above, Pillow is faster on a CPU
_CHUNK = 2048  # images that are decoded at a time, on their way to the device
_AHEAD = 32  # batches whose draws are made at once, while those before are trained on


class DoesNotFit(ValueError):
    """Images that are too many for the device's memory."""


def check_fits(
    count: int, height: int, width: int, device: torch.device, processes: int = 1
) -> None:
    """Raises :class:`DoesNotFit`, with numbers, if images take more than a third of what is free.

    Args:
        count, height, width: of the images.
        device: where they go.
        processes: that share a CPU's memory, each with images of its own.
    """
    free = free_memory(device) // (processes if device.type == "cpu" else 1)
    needed = count * height * width * 3
    if needed > _SHARE * free:
        raise DoesNotFit(
            f"{count} images of {height} x {width} pixels need {needed / 2**20:,.0f} MiB, a third "
            f"of what is free for a process on {device} is {_SHARE * free / 2**20:,.0f} MiB"
        )


class ResidentImages:
    """Images of up to one size on a device.

    Args:
        images: an array, or files that are decoded here, by threads.
        device: where they go.
        processes: see :func:`check_fits`.
        worthwhile: refuse also what would fit, but be slower here than with workers.

    Attributes:
        pixels: (N, H, 3, W) uint8; smaller images stand in the upper left corner.
        sizes: (N, 2) their heights and widths.
        labels: (N,) int64, on the device.

    Raises:
        DoesNotFit: more than a third of the free memory; or not worthwhile.
        UnreadableImage: a file that cannot be read as an image, by its path.
    """

    def __init__(
        self, images: ImageSet, device: torch.device, processes: int = 1, worthwhile: bool = True
    ):
        self.device, self._processes = device, processes
        if isinstance(images.images, np.ndarray):
            count, height, width, _ = images.images.shape
            check_fits(count, height, width, device, processes)
            self.sizes = np.tile([height, width], (count, 1))
            rows = torch.from_numpy(images.images)
            self.pixels = rows.to(device).transpose(2, 3).contiguous()
            self.labels = torch.from_numpy(images.labels).to(device)
            return
        self.sizes = self._header_sizes(images, worthwhile)
        largest = self.sizes.max(axis=0)
        shape = (largest[0], 3, largest[1])
        self.pixels = torch.zeros(len(images), *shape, dtype=torch.uint8, device=device)
        labels = torch.empty(len(images), dtype=torch.int64)
        with Progress("reading images", len(images)) as progress:
            for first in range(0, len(images), _CHUNK):
                chunk = torch.zeros(min(_CHUNK, len(images) - first), *shape, dtype=torch.uint8)

                def read(row: int, first: int = first, chunk: Tensor = chunk) -> None:
                    index = first + row
                    picture, labels[index] = images.take(index)
                    pixels = torch.from_numpy(np.array(picture))
                    tall, wide = pixels.shape[:2]
                    if (pixels.shape[:2] > largest).any():
                        said = self.sizes[index]
                        raise UnreadableImage.of(
                            images.images[index],
                            f"it is {wide} x {tall} pixels large, a moment ago its header said "
                            f"{said[1]} x {said[0]}",
                        )
                    self.sizes[index] = tall, wide
                    chunk[row, :tall, :, :wide] = pixels.transpose(1, 2)

                by_threads(read, len(chunk), progress)
                self.pixels[first : first + len(chunk)] = chunk.to(device)
        self.labels = labels.to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def _header_sizes(self, images: ImageSet, worthwhile: bool) -> np.ndarray:
        """(N, 2) heights and widths from the files' headers; stops as soon as they cannot fit."""
        sizes, largest = [], np.zeros(2, dtype=np.int64)
        for index in track(range(len(images)), "reading image sizes"):
            size = images.size(index)
            sizes.append(size)
            if (size > largest).any():
                largest = np.maximum(largest, size)
                check_fits(len(images), *largest.tolist(), self.device, self._processes)
                if worthwhile and self.device.type == "cpu" and largest.prod() > _CPU_PIXELS:
                    raise DoesNotFit(
                        f"{printable(images.images[index])} has {size[0]} x {size[1]} pixels: of "
                        "images above 128 x 128 workers make views faster on a CPU"
                    )
        found = np.array(sizes)
        if worthwhile and largest.prod() > 2 * found.prod(axis=1).mean():
            raise DoesNotFit(
                f"the images are of unlike sizes: each would take the place of the largest, "
                f"{largest[0]} x {largest[1]} pixels, more than twice what they have"
            )
        return found


def by_threads(work: Callable[[int], None], count: int, progress: Progress) -> None:
    """Calls ``work(0)`` to ``work(count - 1)``, each of them a step of ``progress``."""
    with ThreadPoolExecutor() as pool:
        for first in range(0, count, _CHUNK):  # a million waiting calls would take gigabytes
            for _ in pool.map(work, range(first, min(first + _CHUNK, count))):
                progress.update()


class DeviceLoader:
    """Batches ``[indices, [view] * num_crops, labels]`` for Lightning, made on the device.

    Args:
        images: the training images.
        sampler: this process's order.
        dataset: name of the data set.
        augmentations: of the config.
        memory_format: of the views.
        compiled: whether the augmentation is compiled.
    """

    def __init__(
        self,
        images: ResidentImages,
        sampler: EpochSampler,
        dataset: str,
        augmentations: Sequence[DictConfig],
        memory_format: torch.memory_format = torch.channels_last,
        compiled: bool = False,
    ):
        self.images, self.sampler = images, sampler
        self.batch_size = sampler.batch_size
        self._makers: list[tuple[ViewMaker, np.ndarray]] = []
        first = 0
        for entry in augmentations:
            views = np.arange(first, first + entry.num_crops)[:, None]
            maker = ViewMaker(entry, dataset, images.device, memory_format, compiled)
            self._makers.append((maker, views))
            first += entry.num_crops

    def __len__(self) -> int:
        return self.sampler.batches

    def __iter__(self) -> Iterator[list[Any]]:
        epoch, size = self.sampler.epoch, self.batch_size
        indices = self.sampler.indices()
        rows = indices.to(self.images.device)
        spans = indices.split(size * _AHEAD)
        with ThreadPoolExecutor(1) as pool:
            drawing = pool.submit(self._draw, epoch, spans[0]) if spans else None
            for number, span in enumerate(spans):
                drawn = drawing.result()
                if number + 1 < len(spans):
                    drawing = pool.submit(self._draw, epoch, spans[number + 1])
                for batch in range(len(span) // size):
                    first = (number * _AHEAD + batch) * size
                    chosen = rows[first : first + size]
                    views: list[Tensor] = []
                    for (maker, numbers), parameters in zip(self._makers, drawn, strict=True):
                        count = len(numbers) * size
                        own = parameters.rows(slice(batch * count, (batch + 1) * count))
                        made = maker.make(self.images.pixels, chosen.repeat(len(numbers)), own)
                        views += made.split(size)
                    yield [indices[first : first + size], views, self.images.labels[chosen]]

    def _draw(self, epoch: int, indices: Tensor) -> list[Parameters]:
        """Of all views of the images, in the order (batch, view, image), for each maker."""
        batches = indices.view(-1, 1, self.batch_size).numpy()
        drawn = []
        for maker, numbers in self._makers:
            images, views = (part.ravel() for part in np.broadcast_arrays(batches, numbers))
            items = np.full(len(images), epoch), images, views
            drawn.append(maker.draw(self.images.sizes[images], self.sampler.seed, *items))
        return drawn
