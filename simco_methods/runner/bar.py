"""Progress of a training: epoch, loss, images/s and the time to the end of the run."""

from __future__ import annotations

import copy
import time
from contextlib import suppress
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from tqdm import tqdm

from simco_methods.backbones import micro_resnet
from simco_methods.data.loaders import position
from simco_methods.progress import LINE_SECONDS, duration, on_terminal, say
from simco_methods.runner.notes import CROPS
from simco_methods.runner.plots import LOSSES

_BAR_SECONDS = 0.5
_FIRST_SECONDS = 5.0  # of the first batches, after which the time of the whole run is estimated
_WORTH_SAYING = 60.0  # seconds of a run that are told of
_LONG_ON_CPU = 3600.0
_TRIED = 4  # images on which backbones and crops are compared
_FORM = "{percentage:3.0f}%|{bar:10}| {desc}"


class TrainingBar(pl.Callback):
    """A bar for the whole run on a terminal, elsewhere a line every 30 s.

    The loss is read from the device where it is shown, not at every step. After the first batches
    the time of the run is told, and what would be faster where it is more than an hour on a CPU.
    """

    def __init__(self) -> None:
        self._images = 0  # of a batch of all processes
        self._every = _BAR_SECONDS if on_terminal() else LINE_SECONDS
        self._bar: tqdm[Any] | None = None
        self._due = self._began = self._epoch_began = 0.0
        self._here = self._in_epoch = 0  # batches of this start and of the epoch, without the first
        self._estimated = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._here = self._in_epoch = -1
        self._images = pl_module.cfg.optimizer.batch_size * trainer.world_size
        self._due = time.monotonic() + self._every
        if on_terminal():
            epochs, batches = position(trainer)
            self._bar = tqdm(
                desc=f"epoch {epochs + 1}/{trainer.max_epochs}, first batch",
                total=trainer.max_epochs * trainer.num_training_batches,
                initial=epochs * trainer.num_training_batches + batches,
                leave=False,
                bar_format=_FORM,
            )

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._in_epoch = -1

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        now = time.monotonic()
        self._here += 1
        self._in_epoch += 1
        # First batches wait for workers, and for a compiler.
        if self._here == 0:
            self._began = now
        if self._in_epoch == 0:
            self._epoch_began = now
        if self._bar is not None:
            self._bar.n += 1
        if not self._estimated and self._here and now - self._began >= _FIRST_SECONDS:
            self._estimated = True
            self._estimate(trainer, pl_module, now)
        if now >= self._due:
            self._due = now + self._every
            self._show(trainer, self._text(trainer, pl_module, now))

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        now = time.monotonic()
        if now >= self._due and not trainer.sanity_checking:
            self._due = now + self._every
            count = f"{batch_idx + 1}/{trainer.num_val_batches[dataloader_idx]} batches"
            left = self._left(trainer, now)
            self._show(trainer, f"{self._epoch(trainer)}, validation {count}{left}")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        self.close()

    def close(self) -> None:
        """Takes the bar from the terminal."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _show(self, trainer: pl.Trainer, text: str) -> None:
        if self._bar is None:
            print(text, flush=True)
        else:
            self._bar.set_description_str(text)

    def _epoch(self, trainer: pl.Trainer) -> str:
        return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"

    def _text(self, trainer: pl.Trainer, pl_module: pl.LightningModule, now: float) -> str:
        batches = trainer.num_training_batches
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        text = f"{self._epoch(trainer)}, {done}/{batches} batches"
        # Of the methods of the pack, or of solo-learn's own.
        values = getattr(pl_module, "step_values", None) or trainer.callback_metrics
        for name in LOSSES:
            if f"{name}_step" in values:
                text += f", loss {float(values[f'{name}_step']):.4f}"
        if self._in_epoch and now > self._epoch_began:
            speed = self._in_epoch * self._images / (now - self._epoch_began)
            text += f", {speed:.0f} images/s"
        return text + self._left(trainer, now)

    def _left(self, trainer: pl.Trainer, now: float) -> str:
        seconds = self._seconds_left(trainer, now)
        return "" if seconds is None else f", {duration(seconds)} left"

    def _seconds_left(self, trainer: pl.Trainer, now: float) -> float | None:
        """To the end of the run, by what the batches of this start took, validation included."""
        if self._here < 1:
            return None
        epochs = trainer.max_epochs - trainer.current_epoch
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        batches = epochs * trainer.num_training_batches - done
        return (now - self._began) / self._here * batches

    def _estimate(self, trainer: pl.Trainer, pl_module: pl.LightningModule, now: float) -> None:
        seconds = self._seconds_left(trainer, now)
        if seconds < _WORTH_SAYING:
            return
        speed = self._here * self._images / (now - self._began)
        lines = [
            f"  about {duration(seconds)} to the end of the run, at {speed:.0f} images/s, without "
            "validation"
        ]
        if pl_module.device.type == "cpu" and seconds > _LONG_ON_CPU:
            lines.append(f"  note: that is long; faster: {faster_on_cpu(pl_module)}")
        say("\n".join(lines))


def faster_on_cpu(model: pl.LightningModule) -> str:
    """Settings with which a training step takes less, each with how many times less the backbone
    takes, as measured on a few images."""
    cfg, size = model.cfg, model.cfg.augmentations[0].crop_size
    found = []
    # Whatever a backbone may have against other images: the run goes on.
    with suppress(Exception), torch.random.fork_rng(devices=[]), torch.enable_grad():
        now = _seconds(model.backbone, size)
        if cfg.backbone.name != "micro_resnet":
            times = now / _seconds(micro_resnet(), size)
            if times > 1.2:
                found.append(f"backbone.name=micro_resnet (about {times:.1f} times as fast)")
        smaller = max((crop for crop in CROPS if 2 * crop**2 <= size**2), default=None)
        if smaller:
            times = now / _seconds(model.backbone, smaller)
            found.append(f"augmentations=crop{smaller} (about {times:.1f} times as fast)")
    return ", ".join([*found, f"fewer epochs (max_epochs={cfg.max_epochs}), a GPU"])


def _seconds(backbone: nn.Module, size: int) -> float:
    """CPU seconds of a forward and a backward of :data:`_TRIED` images; changes nothing."""
    backbone = copy.deepcopy(backbone).train()
    images = torch.zeros(_TRIED, 3, size, size).contiguous(memory_format=torch.channels_last)
    for _ in range(2):  # the first one is slower
        began = time.perf_counter()
        backbone(images).sum().backward()
    return time.perf_counter() - began
