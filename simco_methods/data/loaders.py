"""The ``workers`` loader: views made with Pillow in DataLoader workers, for any size of data.

Order and augmentation are functions of (seed, epoch, image, view): the same run, whatever the
number of workers, the batch size or the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lightning.pytorch as pl
import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from simco_methods.data.draws import ViewSettings, draw_views
from simco_methods.data.images import ImageSet
from simco_methods.data.transforms import Preprocessing, per_view, pillow_view
from simco_methods.seeds import derived_seed


def position(trainer: pl.Trainer) -> tuple[int, int]:
    """Epochs of a training that are done, and batches of the next one that are."""
    loop = trainer.fit_loop
    epochs = loop.epoch_progress.current
    if epochs.processed == epochs.ready:
        return epochs.processed, 0
    return epochs.processed, loop.epoch_loop.batch_progress.current.completed


class PretrainSet(Dataset):
    """``(index, [view] * num_crops, label)``, asked for by ``(epoch, index)``.

    Args:
        images: the images.
        dataset: name of the data set, for its mean and standard deviation.
        augmentations: of the config.
        seed: of the draws, which are functions of it, the epoch, the index and the view.
        views: which of the views to make, None for all.
    """

    def __init__(
        self,
        images: ImageSet,
        dataset: str,
        augmentations: Sequence[DictConfig],
        seed: int,
        views: Sequence[int] | None = None,
    ):
        entries = per_view(augmentations)
        self.images, self.seed = images, seed
        self.views = range(len(entries)) if views is None else views
        self.settings = [ViewSettings.from_config(entry) for entry in entries]
        self.preprocessings = [Preprocessing.of(dataset, entry) for entry in entries]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, item: tuple[int, int]) -> tuple[int, list[Tensor], int]:
        return self.__getitems__([item])[0]

    def __getitems__(self, items: Sequence[tuple[int, int]]) -> list[tuple[int, list[Tensor], int]]:
        """A batch at once, as DataLoader asks: its draws are one computation a view."""
        epochs, indices = np.array(items).T
        pictures, labels = zip(*(self.images.take(index) for index in indices), strict=True)
        sizes = np.array([picture.size[::-1] for picture in pictures])
        views: list[list[Tensor]] = [[] for _ in items]
        for view in self.views:
            settings, preprocessing = self.settings[view], self.preprocessings[view]
            draws = draw_views(
                settings, sizes, self.seed, epochs, indices, np.full(len(items), view)
            )
            for row, picture in enumerate(pictures):
                made = pillow_view(picture, settings, draws.rows(row))
                views[row].append(preprocessing.normalize(made))
        return list(zip(indices.tolist(), views, labels, strict=True))


class PlainSet(Dataset):
    """``(image, label)`` without augmentation.

    Args:
        images: the images.
        preprocessing: of each.
    """

    def __init__(self, images: ImageSet, preprocessing: Preprocessing):
        self.images, self.preprocessing = images, preprocessing

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture, label = self.images.take(index)
        return self.preprocessing(picture), label


class EpochSampler(Sampler):
    """This process's ``(epoch, index)`` pairs: its slice of every global batch, in order.

    W processes with batches of B see, batch by batch, what one process with batches of W * B sees.
    The images left over at the end of an epoch's order are dropped; each epoch has its own order.

    Args:
        length: number of images.
        batch_size: B, of one process.
        seed: of the order.
        rank, world_size: this process, and how many there are.
        start: the epoch that a resumed run begins with, and the batches of it that were done.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        start: tuple[int, int] = (0, 0),
    ):
        self.batches = length // (batch_size * world_size)
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.start = start
        self.epoch = start[0]

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch.

        Resuming, Lightning first says 0 and makes the iterator, whose workers begin at once; the
        epoch to resume at holds against that.
        """
        self.epoch = max(epoch, self.start[0])

    def __len__(self) -> int:
        """Images of a whole epoch; of one that is taken up in its middle the rest comes."""
        return self.batches * self.batch_size

    def indices(self) -> Tensor:
        """The images of this epoch that are still to come, at most (len,) int64."""
        generator = torch.Generator().manual_seed(derived_seed(self.seed, self.epoch))
        order = torch.randperm(self.length, generator=generator)
        order = order[: self.batches * self.world_size * self.batch_size]
        order = order.view(self.batches, self.world_size, self.batch_size)[:, self.rank]
        return order[self.start[1] if self.epoch == self.start[0] else 0 :].flatten()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter([(self.epoch, index) for index in self.indices().tolist()])
