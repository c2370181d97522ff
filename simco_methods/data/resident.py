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
from tqdm import tqdm

from simco_methods.compiling import compiled_if_possible
from simco_methods.data.augment import augment
from simco_methods.data.draws import ViewSettings, draw_views
from simco_methods.data.images import ImageSet
from simco_methods.data.loaders import EpochSampler
from simco_methods.data.parameters import Parameters
from simco_methods.data.transforms import Normalization
from simco_methods.machine import free_memory

_SHARE = 0.5  # of the free memory that images may take
_AHEAD = 32  # batches whose draws are made at once, while those before are trained on
_CPU_VIEWS = 64  # augmented at a time, so that they stay in a core's cache


class DoesNotFit(ValueError):
    """Images that are too many for the device's memory."""


def check_fits(count: int, height: int, width: int, device: torch.device) -> None:
    """Raises :class:`DoesNotFit`, with numbers, if images take more than half the free memory."""
    needed, free = count * height * width * 3, free_memory(device)
    if needed > _SHARE * free:
        raise DoesNotFit(
            f"{count} images of {height} x {width} pixels need {needed / 2**20:,.0f} MiB, "
            f"{_SHARE:.0%} of what is free on {device} is {_SHARE * free / 2**20:,.0f} MiB"
        )


class ResidentImages:
    """Images of up to one size on a device.

    Args:
        images: an array, or files that are decoded here, by threads.
        device: where they go.

    Attributes:
        pixels: (N, H, 3, W) uint8; smaller images stand in the upper left corner.
        sizes: (N, 2) their heights and widths.
        labels: (N,) int64, on the device.

    Raises:
        DoesNotFit: more than half of the free memory.
        OSError: a file that cannot be read as an image, by its path.
    """

    def __init__(self, images: ImageSet, device: torch.device):
        self.device = device
        self.labels = torch.from_numpy(images.labels).to(device)
        if isinstance(images.images, np.ndarray):
            count, height, width, _ = images.images.shape
            check_fits(count, height, width, device)
            self.sizes = np.tile([height, width], (count, 1))
            rows = torch.from_numpy(images.images)
            self.pixels = rows.to(device).transpose(2, 3).contiguous()
            return
        self.sizes = _header_sizes(images, device)
        height, width = self.sizes.max(axis=0).tolist()
        pixels = torch.zeros(len(images), height, 3, width, dtype=torch.uint8)

        def read(index: int) -> None:
            picture = torch.from_numpy(np.array(images.load(index)))
            pixels[index, : len(picture), :, : picture.shape[1]] = picture.transpose(1, 2)

        by_threads(read, len(images))
        self.pixels = pixels.to(device)

    def __len__(self) -> int:
        return len(self.labels)


def _header_sizes(images: ImageSet, device: torch.device) -> np.ndarray:
    """(N, 2) heights and widths from the files' headers; stops as soon as they cannot fit."""
    sizes, largest = [], np.zeros(2, dtype=np.int64)
    for index in tqdm(range(len(images)), "sizes", unit="image", leave=False, disable=None):
        size = images.size(index)
        sizes.append(size)
        if (size > largest).any():
            largest = np.maximum(largest, size)
            check_fits(len(images), *largest.tolist(), device)
    return np.array(sizes)


def by_threads(work: Callable[[int], None], count: int) -> None:
    """Calls ``work(0)`` to ``work(count - 1)``, reading images, with a progress bar."""
    with ThreadPoolExecutor() as pool:
        done = pool.map(work, range(count))
        for _ in tqdm(done, desc="reading", total=count, unit="image", leave=False, disable=None):
            pass


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
                    pixels = self.images.pixels[chosen]
                    views: list[Tensor] = []
                    for (maker, numbers), parameters in zip(self._makers, drawn, strict=True):
                        count = len(numbers) * size
                        own = parameters.rows(slice(batch * count, (batch + 1) * count))
                        made = maker.make(pixels.repeat(len(numbers), 1, 1, 1), own)
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


class ViewMaker:
    """Makes the views of one entry of ``augmentations`` on the device.

    Args:
        entry: of the config.
        dataset: name of the data set, for its mean and standard deviation.
        device: where the pixels lie.
        memory_format: of the views.
        compiled: whether the augmentation is compiled.
    """

    def __init__(
        self,
        entry: DictConfig,
        dataset: str,
        device: torch.device,
        memory_format: torch.memory_format = torch.channels_last,
        compiled: bool = False,
    ):
        self.settings, self.device = ViewSettings.from_config(entry), device
        self._memory_format = memory_format
        self._augment = compiled_if_possible(augment, device) if compiled else augment
        self._at_once = _CPU_VIEWS if device.type == "cpu" and not compiled else None
        normalization = Normalization(dataset, entry)
        std = torch.tensor(normalization.std, device=device).view(3, 1, 1)
        mean = torch.tensor(normalization.mean, device=device).view(3, 1, 1)
        self._scale, self._shift = 1 / (255 * std), -mean / std

    def draw(self, sizes: np.ndarray, seed: int, *items: np.ndarray) -> Parameters:
        """Parameters of N views; arguments as of :func:`~simco_methods.data.draws.draw_views`."""
        draws = draw_views(self.settings, sizes, seed, *items)
        return Parameters.from_draws(self.settings, draws, self.device)

    @torch.no_grad()
    def make(self, pixels: Tensor, parameters: Parameters) -> Tensor:
        """(N, H, 3, W) uint8 to N normalised views, (N, 3, S, S) float32."""
        size, count = self.settings.crop_size, len(pixels)
        shape = (count, 3, size, size)
        made = torch.empty(shape, device=self.device, memory_format=self._memory_format)
        step = self._at_once or count
        for first in range(0, count, step):
            rows = slice(first, first + step)
            view = self._augment(pixels[rows], self.settings, parameters.rows(rows))
            torch.addcmul(self._shift, view.transpose(1, 2), self._scale, out=made[rows])
        return made
