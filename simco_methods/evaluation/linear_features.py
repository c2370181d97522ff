"""Features of an encoder for the training of classifiers: of new crops, or kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simco_methods.data import ImageSet, PretrainData
from simco_methods.data.loaders import EpochSampler
from simco_methods.encoder import Encoder
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.linear_training import Streamed
from simco_methods.evaluation.loading import check_finite, evaluation_data, extract_features
from simco_methods.evaluation.sides import Sides
from simco_methods.machine import free_memory
from simco_methods.progress import track


def autocast(device: torch.device, settings: LinearSettings) -> torch.autocast:
    """What a network is forwarded in."""
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16")


@dataclass
class PlainFeatures:
    """Features (N, F) in float32 and labels (N,) of images without augmentation.

    Attributes:
        train, test: of the two sides.
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


class Frozen:
    """Features of an encoder in evaluation mode, without gradient, in float32.

    Args:
        encoder: on its device.
        settings: completed.
        known: of the images without augmentation, to be taken where the network is not forwarded in
            another precision.
    """

    def __init__(
        self, encoder: Encoder, settings: LinearSettings, known: PlainFeatures | None = None
    ):
        self.encoder, self.settings = encoder, settings
        self.known = known if settings.precision == "32" else None

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        with autocast(self.encoder.device, self.settings):
            return self.encoder(images).float()

    def plain(self, loader: Iterable, what: str) -> tuple[Tensor, Tensor]:
        """Features and labels of a loader's images, on the CPU."""
        device = self.encoder.device
        with autocast(device, self.settings):
            found = extract_features(self.encoder.backbone, loader, device, what)
        check_finite(found[0])
        return found

    def train(self, data: PretrainData) -> tuple[Tensor, Tensor]:
        """The same of the training images, on some device."""
        if self.known is not None:
            return self.known.train
        return self.plain(data.bank_dataloader(), "training images")

    def test(self, data: PretrainData) -> tuple[Tensor, Tensor]:
        """The same of the test images on the encoder's device, where classifiers are tested."""
        known = self.known
        return self._on_device(
            known.test if known else self.plain(data.val_dataloader(), "test images")
        )

    def held_out(self, images: ImageSet, rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The same of some training images."""
        if self.known is not None:
            features, labels = self.known.train
            chosen = rows.to(features.device)
            return self._on_device((features[chosen], labels[chosen]))
        some = images.select(np.flatnonzero(rows))
        workers = self.settings.num_workers
        data = evaluation_data(self.encoder, some, None, batch_size=size, num_workers=workers)
        return self._on_device(self.plain(data.bank_dataloader(), "held-out images"))

    def _on_device(self, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        features, labels = pair
        return features.to(self.encoder.device), labels.to(self.encoder.device)


class FrozenStream(Streamed):
    """Features of new crops every epoch."""

    def __init__(self, frozen: Frozen, sides: Sides, size: int):
        super().__init__(frozen.encoder, sides.train, sides.test, frozen.settings, size)
        self.frozen = frozen

    def __call__(self, epoch: int, first: int = 0) -> Iterable[Sequence[Tensor]]:
        for indices, views, labels in super().__call__(epoch, first):
            yield indices, self.frozen(views), labels


class Cached:
    """Features of views that are made once: epoch e has the view e mod ``views`` of each image.

    Order and views are those of :class:`FrozenStream` in the first ``views`` epochs.

    Raises:
        ValueError: more than half of the free memory.
    """

    def __init__(self, frozen: Frozen, sides: Sides, size: int):
        settings, encoder = frozen.settings, frozen.encoder
        count, views = len(sides.train), settings.views
        needed, free = count * views * encoder.features * 4, free_memory(torch.device("cpu"))
        if needed > free // 2:
            raise ValueError(
                f"features=cached views={views} would take {needed / 2**30:,.1f} GiB, half of the "
                f"free memory is {free / 2**31:,.1f} GiB; take fewer views or features=streamed"
            )
        self.seed, self.size, self.device = settings.seed, size, encoder.device
        if settings.augment:
            # Whole batches, in which every image is.
            padded = np.arange(count + -count % size) % count
            stream = Streamed(encoder, sides.train.select(padded), sides.test, settings, size)
            self.data = stream.data
            features = torch.empty(views, len(padded), encoder.features)
            for view in range(views):
                title = f"features of crop {view + 1} of {views}"
                batches = track(stream(view), title, len(padded) // size, "batches")
                for indices, images, _ in batches:
                    features[view, indices] = frozen(images).cpu()
            self.features, labels = features[:, :count], torch.from_numpy(sides.train.labels)
        else:
            workers = settings.num_workers
            self.data = evaluation_data(
                encoder, sides.train, sides.test, batch_size=size, num_workers=workers
            )
            features, labels = frozen.train(self.data)
            self.features = features.cpu()[None]
        if self.features.nbytes < free_memory(self.device) // 4:
            self.features = self.features.to(self.device)
        self.labels = labels.to(self.device)

    def __call__(self, epoch: int, first: int = 0) -> Iterable[Sequence[Tensor]]:
        start = epoch, first
        sampler = EpochSampler(self.features.shape[1], self.size, self.seed, start=start)
        features = self.features[epoch % len(self.features)]
        for indices in sampler.indices().split(self.size):
            found = features[indices.to(features.device)].to(self.device)
            yield indices, found, self.labels[indices.to(self.device)]
