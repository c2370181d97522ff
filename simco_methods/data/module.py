"""The loaders of a run: which there are, and which one makes its views."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch.utils.data import DataLoader, Dataset

from simco_methods.data.images import UNLABELLED, ImageSet
from simco_methods.data.loaders import EpochSampler, PlainSet, PretrainSet, position
from simco_methods.data.plain import PlainLoader, plain_batches
from simco_methods.data.resident import DeviceLoader, DoesNotFit, ResidentImages
from simco_methods.data.transforms import Preprocessing
from simco_methods.data.workers import cores, leave_signals_to_the_run, usable_workers, with_workers


class PretrainData(pl.LightningDataModule):
    """The training views and the validation images of a parsed config.

    Args:
        cfg: ``data``, ``augmentations``, ``optimizer.batch_size``, ``performance`` and ``seed``.
        train: the training images.
        val: the validation images, None for no validation.
        device: where the ``device`` loader keeps its images.
        processes: of this machine, which share a CPU's memory.

    Attributes:
        loader: which loader makes the views, and why, in words; after :meth:`choose_loader`.
        resident: the training images on the device, None where workers read them.
    """

    def __init__(
        self,
        cfg: DictConfig,
        train: ImageSet,
        val: ImageSet | None,
        device: torch.device | str = "cpu",
        processes: int = 1,
    ):
        super().__init__()
        self.cfg, self.train, self.val = cfg, train, val
        self.device, self.processes = torch.device(device), processes
        self._start = 0, 0  # epoch and batch
        self._wanted = OmegaConf.select(cfg, "data.loader", default="workers")
        self._val: PlainLoader | None = None

    def state_dict(self) -> dict[str, int]:
        """Saved with checkpoints: where to go on."""
        return dict(zip(("next_epoch", "next_batch"), position(self.trainer), strict=True))

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._start = state_dict["next_epoch"], state_dict.get("next_batch", 0)

    def check_size(self, processes: int) -> None:
        """Raises ``ValueError`` if there are too few images for ``processes`` of them."""
        size = self.cfg.optimizer.batch_size
        if len(self.train) < size * processes:
            most = len(self.train) // processes
            advice = f": set optimizer.batch_size={most} or less" if most else ""
            raise ValueError(
                f"one batch needs {size * processes} images (optimizer.batch_size={size} on "
                f"{processes} process(es)), the data has {len(self.train)}{advice}"
            )
        if self.val is not None and len(self.val) < processes:
            raise ValueError(
                f"{processes} processes need as many images to validate on, "
                f"there are {len(self.val)}"
            )

    def choose_loader(self) -> None:
        """Puts the training images on the device, or leaves them to workers; see :attr:`loader`.

        Raises:
            DoesNotFit: ``data.loader=device``, and they take more than a third of its free memory.
            UnreadableImage: a file that cannot be read as an image, by its path.
        """
        wanted = self._wanted
        self.resident: ResidentImages | None = None
        self.loader = f"images are read as they are needed, by {self._by_whom()}"
        if wanted == "workers":
            return
        try:
            self.resident = ResidentImages(
                self.train, self.device, self.processes, worthwhile=wanted == "auto"
            )
        except DoesNotFit as error:
            if wanted == "device":
                raise DoesNotFit(f"data.loader=device: {error}; take workers or auto") from error
            self.loader += f": {error}"
        else:
            taken = f"{max(1, self.resident.pixels.numel() // 2**20):,} MiB"
            self.loader = f"images are held in memory, {taken}"
            if self.device.type != "cpu":
                self.loader = f"images are held on {self.device}, {taken}; views are made there"

    def _by_whom(self) -> str:
        wanted = self.cfg.data.num_workers
        workers = usable_workers(wanted, self.processes)
        if not workers:
            return "the process that trains"
        said = f"{workers} worker process{'es' if workers > 1 else ''}"
        if workers < wanted:
            said += f" (data.num_workers={wanted}, on {cores()} CPU cores)"
        return said

    def train_dataloader(self) -> DataLoader | DeviceLoader:
        cfg = self.cfg
        sampler = EpochSampler(
            len(self.train),
            cfg.optimizer.batch_size,
            cfg.seed,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=self.trainer.world_size if self.trainer else 1,
            start=self._start,
        )
        made_of = cfg.data.dataset, cfg.augmentations
        if not hasattr(self, "resident"):
            self.choose_loader()
        if self.resident is None:
            dataset = PretrainSet(self.train, *made_of, cfg.seed)
            return self._workers(dataset, sampler=sampler, drop_last=True)
        plain = OmegaConf.select(cfg, "performance.disable_channel_last", default=False)
        return DeviceLoader(
            self.resident,
            sampler,
            *made_of,
            memory_format=torch.contiguous_format if plain else torch.channels_last,
            compiled=OmegaConf.select(cfg, "performance.compile", default=False),
        )

    def val_dataloader(self) -> DataLoader | PlainLoader | list:
        if self.val is None:
            return []
        rows = self._share(len(self.val))
        # Kept: it is asked for to validate, and for the offline kNN, with all images.
        if self._val is None or len(self._val.labels) != len(rows):
            loader = self._without_augmentation(self.val, rows)
            if not isinstance(loader, PlainLoader):
                return loader
            self._val = loader
        return self._val

    def bank_dataloader(self) -> DataLoader | PlainLoader:
        """The labelled training images without augmentation, each once over all processes."""
        labelled = np.flatnonzero(self.train.labels != UNLABELLED)
        return self._without_augmentation(self.train, labelled[self._share(len(labelled))])

    def _without_augmentation(self, images: ImageSet, rows: np.ndarray) -> DataLoader | PlainLoader:
        cfg = self.cfg
        preprocessing = Preprocessing.of(cfg.data.dataset, cfg.augmentations[0])
        if self._wanted != "workers":
            size = cfg.optimizer.batch_size
            try:
                return plain_batches(images, rows, preprocessing, size, self.device, self.processes)
            except DoesNotFit:
                pass
        return self._workers(PlainSet(images, preprocessing), sampler=rows.tolist())

    def _share(self, length: int) -> np.ndarray:
        """Every world_size-th image: none is seen twice, whatever the number of processes."""
        if not self.trainer:
            return np.arange(length)
        return np.arange(self.trainer.global_rank, length, self.trainer.world_size)

    def _workers(self, dataset: Dataset, **options: Any) -> DataLoader:
        workers = usable_workers(self.cfg.data.num_workers, self.processes)
        loader = DataLoader(
            dataset,
            batch_size=self.cfg.optimizer.batch_size,
            num_workers=workers,
            persistent_workers=workers > 0,
            worker_init_fn=leave_signals_to_the_run,
            pin_memory=torch.cuda.is_available(),
            # Else it would draw from the generator that the model draws from.
            generator=torch.Generator(),
            **options,
        )
        return with_workers(loader)
