"""The ``workers`` loader: torchvision transforms in DataLoader workers, for any size of data.

Order and augmentation are functions of (seed, epoch, image, view): the same run, whatever the
number of workers, the batch size or the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from omegaconf import DictConfig
from torch.utils.data import DataLoader, Dataset, Sampler

from simco_methods.data.datasets import has_validation, load_images
from simco_methods.data.images import UNLABELLED, ImageSet
from simco_methods.data.transforms import eval_transform, view_transforms
from simco_methods.seeds import derived_seed


class PretrainSet(Dataset):
    """``(index, [view] * num_crops, label)``, asked for by ``(epoch, index)``.

    Args:
        images: the images.
        transforms: one a view.
        seed: of the draws, which are functions of it, the epoch, the index and the view.
        views: which of the views to make, None for all.
    """

    def __init__(
        self,
        images: ImageSet,
        transforms: Sequence[Any],
        seed: int,
        views: Sequence[int] | None = None,
    ):
        self.images, self.transforms, self.seed = images, transforms, seed
        self.views = range(len(transforms)) if views is None else views

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, item: tuple[int, int]) -> tuple[int, list[torch.Tensor], int]:
        epoch, index = item
        image = self.images.load(index)
        views = []
        with torch.random.fork_rng(devices=[]):
            for view in self.views:
                torch.default_generator.manual_seed(derived_seed(self.seed, epoch, index, view))
                views.append(self.transforms[view](image))
        return index, views, int(self.images.labels[index])


class LabelledSet(Dataset):
    """``(image, label)`` without augmentation."""

    def __init__(self, images: ImageSet, transform: Any):
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.images.load(index)), int(self.images.labels[index])


class EpochSampler(Sampler):
    """This process's ``(epoch, index)`` pairs: its slice of every global batch, in order.

    W processes with batches of B see, batch by batch, what one process with batches of W * B sees.
    The images left over at the end of an epoch's order are dropped; each epoch has its own order.

    Args:
        length: number of images.
        batch_size: B, of one process.
        seed: of the order.
        rank, world_size: this process, and how many there are.
        first_epoch: the epoch that a resumed run begins with.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        first_epoch: int = 0,
    ):
        self.batches = length // (batch_size * world_size)
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = self.first_epoch = first_epoch

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch.

        Resuming, Lightning first says 0 and makes the iterator, whose workers begin at once; the
        epoch to resume at holds against that.
        """
        self.epoch = max(epoch, self.first_epoch)

    def __len__(self) -> int:
        return self.batches * self.batch_size

    def __iter__(self) -> Iterator[tuple[int, int]]:
        generator = torch.Generator().manual_seed(derived_seed(self.seed, self.epoch))
        order = torch.randperm(self.length, generator=generator)
        order = order[: self.batches * self.world_size * self.batch_size]
        order = order.view(self.batches, self.world_size, self.batch_size)[:, self.rank]
        return iter([(self.epoch, index) for index in order.flatten().tolist()])


class PretrainData(pl.LightningDataModule):
    """The training views and the validation images of a parsed config.

    Args:
        cfg: ``data``, ``augmentations``, ``optimizer.batch_size`` and ``seed``.
        train: the training images.
        val: the validation images, None for no validation.
    """

    def __init__(self, cfg: DictConfig, train: ImageSet, val: ImageSet | None):
        super().__init__()
        self.cfg, self.train, self.val = cfg, train, val
        self._first_epoch = 0

    def state_dict(self) -> dict[str, int]:
        """Saved with checkpoints, which are made at the end of an epoch."""
        return {"next_epoch": self.trainer.current_epoch + 1}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._first_epoch = state_dict["next_epoch"]

    @classmethod
    def from_config(cls, cfg: DictConfig) -> PretrainData:
        """Loads the images that ``cfg.data`` names."""
        train = load_images(cfg.data, "train")
        val = load_images(cfg.data, "val", train.classes) if has_validation(cfg.data) else None
        return cls(cfg, train, val)

    def check_size(self, processes: int) -> None:
        """Raises ``ValueError`` if there are too few images for ``processes`` of them."""
        size = self.cfg.optimizer.batch_size
        if len(self.train) < size * processes:
            raise ValueError(
                f"one batch needs {size * processes} images (optimizer.batch_size={size} on "
                f"{processes} process(es)), the data has {len(self.train)}"
            )
        if self.val is not None and len(self.val) < processes:
            raise ValueError(
                f"{processes} processes need as many images to validate on, "
                f"there are {len(self.val)}"
            )

    def train_dataloader(self) -> DataLoader:
        transforms = view_transforms(self.cfg.data.dataset, self.cfg.augmentations)
        sampler = EpochSampler(
            len(self.train),
            self.cfg.optimizer.batch_size,
            self.cfg.seed,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=self.trainer.world_size if self.trainer else 1,
            first_epoch=self._first_epoch,
        )
        return self._loader(
            PretrainSet(self.train, transforms, self.cfg.seed), sampler=sampler, drop_last=True
        )

    def val_dataloader(self) -> DataLoader | list:
        if self.val is None:
            return []
        return self._loader(self._plain(self.val), sampler=self._share(len(self.val)))

    def bank_dataloader(self) -> DataLoader:
        """The labelled training images without augmentation, each once over all processes."""
        bank = self.train.select(np.flatnonzero(self.train.labels != UNLABELLED))
        return self._loader(self._plain(bank), sampler=self._share(len(bank)))

    def _plain(self, images: ImageSet) -> LabelledSet:
        return LabelledSet(images, eval_transform(self.cfg.data.dataset, self.cfg.augmentations[0]))

    def _share(self, length: int) -> range:
        """Every world_size-th image: none is seen twice, whatever the number of processes."""
        if not self.trainer:
            return range(length)
        return range(self.trainer.global_rank, length, self.trainer.world_size)

    def _loader(self, dataset: Dataset, **options: Any) -> DataLoader:
        workers = self.cfg.data.num_workers
        return DataLoader(
            dataset,
            batch_size=self.cfg.optimizer.batch_size,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
            **options,
        )
