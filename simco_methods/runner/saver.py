"""The run's checkpoints: whole or not there, after epochs and where a signal ends the run."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import SIGTERMException
from omegaconf import OmegaConf

from simco_methods import __version__
from simco_methods.data.loaders import position
from simco_methods.distributed import world_size
from simco_methods.host import HOST
from simco_methods.runner.folder import RunFolder
from simco_methods.runner.stopping import MENDED, RunStopped


class WholeFiles(TorchCheckpointIO):
    """Writes where it is told: :class:`Saver` puts whole files in place. Lightning's own way by a
    temporary file elsewhere leaves that behind when it is killed."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        # Through memory: torch, writing to a file, hides why it could not.
        content = io.BytesIO()
        torch.save(checkpoint, content)
        Path(path).write_bytes(content.getbuffer())


class Saver(Checkpoint):
    """Saves after epochs, and where a signal ends a run within one.

    Beside Lightning's state a checkpoint holds ``simco_methods``: ``version``, ``host``,
    ``fingerprint``, ``config``, ``images`` (digests of the image sets) and ``processes``: of each
    the random state and what the method has gathered of an unfinished epoch.

    Args:
        folder: of the run; the newest two checkpoints are kept there.

    Attributes:
        images: digests by split; set before training.
    """

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self.images: dict[str, str] = {}
        self._resumed: list[dict[str, Any]] | None = None
        self._saved: tuple[int, int] | None = None  # the position of the newest, loaded or saved

    # ---- when ------------------------------------------------------------------------------------

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        _flush(trainer)  # the means, which are logged after the checkpoint

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        settings = self.folder.cfg.checkpoint
        done = trainer.current_epoch + 1
        due = done % settings.frequency == 0 or done == trainer.max_epochs
        if settings.enabled and (due or trainer.received_sigterm):
            self._save(trainer, f"epoch={done - 1}.ckpt" if due and settings.keep_prev else None)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        # solo-learn's own methods cannot take an epoch up in the middle.
        whole = isinstance(exception, SIGTERMException) and hasattr(pl_module, "epoch_state")
        if whole and self.folder.cfg.checkpoint.enabled and position(trainer)[1]:
            self._save(trainer)

    # ---- how -------------------------------------------------------------------------------------

    def _save(self, trainer: pl.Trainer, copy: str | None = None) -> None:
        """Replaces the newest checkpoint, which becomes the one before; in all processes alike.

        Raises:
            RunStopped: what cannot be written; the checkpoints are as they were.
        """
        if position(trainer) == self._saved:
            return
        _flush(trainer)
        part, failure = self.folder.last_checkpoint.with_suffix(".part"), ""
        try:
            trainer.save_checkpoint(part)
        except OSError as error:
            failure = str(error)
            trainer.strategy.barrier()  # where the others wait
        else:
            if trainer.is_global_zero:
                try:
                    self._put_in_place(part, copy)
                except OSError as error:
                    failure = str(error)
        failure = trainer.strategy.broadcast(failure)
        if failure:
            if trainer.is_global_zero:
                part.unlink(missing_ok=True)
            raise RunStopped(
                f"the checkpoint cannot be written to {self.folder.checkpoints}: "
                f"{failure.splitlines()[0]}. The one before is whole; {MENDED}"
            )
        self._saved = position(trainer)

    def _put_in_place(self, part: Path, copy: str | None) -> None:
        last = self.folder.last_checkpoint
        _to_disk(part)
        if copy:
            shutil.copyfile(part, last.with_name(f"{copy}.part"))
            os.replace(last.with_name(f"{copy}.part"), last.with_name(copy))
        if last.exists() and self._saved:
            os.replace(last, self.folder.previous_checkpoint)
        else:  # of a run that was started anew
            self.folder.previous_checkpoint.unlink(missing_ok=True)
        os.replace(part, last)
        _to_disk(last.parent)

    # ---- what ------------------------------------------------------------------------------------

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        unfinished = position(trainer)[1] > 0 and hasattr(pl_module, "epoch_state")
        own = {"random": _random_state(), "epoch": pl_module.epoch_state() if unfinished else None}
        processes = [own]
        if world_size() > 1:
            processes = [None] * world_size()
            dist.all_gather_object(processes, own)
        checkpoint["simco_methods"] = {
            "version": __version__,
            "host": HOST,
            "fingerprint": self.folder.fingerprint,
            "config": OmegaConf.to_container(self.folder.cfg),
            "images": self.images,
            "classes": self.classes,
            "processes": processes,
        }

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._resumed = checkpoint["simco_methods"].get("processes")
        data = checkpoint["PretrainData"]
        self._saved = data["next_epoch"], data.get("next_batch", 0)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # Not before: Lightning may, or may not, have begun the epoch anew until here.
        if self._resumed is not None and len(self._resumed) == trainer.world_size:
            own = self._resumed[trainer.global_rank]
            if own["epoch"] is not None:
                pl_module.load_epoch_state(own["epoch"])
            _set_random_state(own["random"])
        self._resumed = None


def _random_state() -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _set_random_state(state: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _flush(trainer: pl.Trainer) -> None:
    """So that no point of a curve is lost that lies before a checkpoint."""
    if trainer.is_global_zero:
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.flush()


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
