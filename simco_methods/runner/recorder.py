"""The run's memory: a row of metrics after each epoch."""

from __future__ import annotations

import time
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint

from simco_methods.files import write_csv
from simco_methods.machine import wait_for_gpu
from simco_methods.measures import in_percent
from simco_methods.progress import say
from simco_methods.runner.folder import RunFolder
from simco_methods.runner.plots import LOSSES


class Recorder(Checkpoint):
    """Writes metrics.csv after each epoch and carries the history across resumes.

    Being a ``Checkpoint`` callback, it is called after the model has logged the epoch's means.

    Attributes:
        images_per_batch: of all processes; set before training.
        history: one row an epoch, plain numbers.
        untrained: kNN accuracies of the encoder before the first step.
        seconds: wall time of all epochs so far, validation included.
    """

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self.images_per_batch = 0
        self.history: list[dict[str, float]] = []
        self.untrained: dict[str, float] = {}
        self.seconds = 0.0
        self._validation: dict[str, float] = {}
        self._epoch_start = self._validation_seconds = self._validation_start = 0.0
        self._elapsed = 0.0  # of an epoch that was stopped, before it was
        self._in_epoch = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Of an epoch that is taken up in its middle Lightning may not call the start again.
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._epoch_start, self._in_epoch = time.perf_counter(), True
        self._validation_seconds, self._validation = 0.0, {}
        if trainer.current_epoch + 1 == trainer.max_epochs and trainer.check_val_every_n_epoch:
            trainer.check_val_every_n_epoch = 1  # the last epoch's accuracy is the run's

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        wait_for_gpu()  # what is still to be done of the training does not count as validation
        self._validation_start = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            self._validation_seconds += time.perf_counter() - self._validation_start
            self._validation = _numbers(trainer.callback_metrics, "val_", "momentum_val_")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        wait_for_gpu()
        elapsed = self._epoch_seconds()
        self.seconds += elapsed
        self._elapsed, self._in_epoch = 0.0, False
        training = max(elapsed - self._validation_seconds, 1e-9)
        row = {
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "seconds": round(self.seconds, 3),
            "images_per_second": round(
                self.images_per_batch * trainer.num_training_batches / training, 1
            ),
            **_numbers(trainer.callback_metrics, "train_"),
            **self._validation,
        }
        self.history.append(row)
        if trainer.is_global_zero:
            write_csv(self.folder.metrics, self.history)
            say(_line(row, trainer.max_epochs))

    def _epoch_seconds(self) -> float:
        return self._elapsed + time.perf_counter() - self._epoch_start

    def state_dict(self) -> dict[str, Any]:
        return {
            "history": self.history,
            "untrained": self.untrained,
            "seconds": self.seconds,
            "elapsed": self._epoch_seconds() if self._in_epoch else 0.0,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history = [dict(row) for row in state["history"]]
        self.untrained = dict(state["untrained"])
        self.seconds = state["seconds"]
        self._elapsed = state.get("elapsed", 0.0)


def _numbers(metrics: dict[str, Any], *prefixes: str) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in sorted(metrics.items())
        if name.startswith(prefixes) and not name.endswith(("_step", "_epoch"))
    }


def _line(row: dict[str, float], epochs: int) -> str:
    parts = [f"loss {row[name]:.4f}" for name in LOSSES if name in row]
    parts += in_percent(row, ("val_acc1", "val_knn_acc1"))
    parts.append(f"{row['images_per_second']:.0f} images/s")
    return f"epoch {row['epoch'] + 1}/{epochs}: " + ", ".join(parts)
