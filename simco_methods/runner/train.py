"""One pretraining run, from a config to its folder."""

from __future__ import annotations

import errno
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig

from simco_methods.analysis.during import check_projector
from simco_methods.command import memory_fault
from simco_methods.config.method import refusals_named
from simco_methods.config.parse import complete, parse
from simco_methods.data import ImageSet, PretrainData, read_images
from simco_methods.data.decode import UnreadableImage
from simco_methods.data.readable import readable_only
from simco_methods.data.workers import end_workers
from simco_methods.files import rounded, write_json
from simco_methods.machine import hardware
from simco_methods.methods import find_method
from simco_methods.quiet import without_logged
from simco_methods.runner.account import (
    chance_notes,
    closing,
    finished_before,
    introduction,
    summary_of,
)
from simco_methods.runner.evaluate import offline_knn
from simco_methods.runner.folder import RunFolder
from simco_methods.runner.notes import batches_per_epoch, check_limits
from simco_methods.runner.plots import draw_curves
from simco_methods.runner.processes import check_processes, end_with_launcher, ended_together
from simco_methods.runner.rank import process_rank
from simco_methods.runner.recorder import Recorder
from simco_methods.runner.resume import checkpoint_to_resume
from simco_methods.runner.saver import Saver
from simco_methods.runner.stopping import MENDED, Interrupted, RunStopped, StopOnSignal
from simco_methods.runner.trainer import build_trainer, end_loggers

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class Run:
    """A run whose config and data have been checked, ready to be trained.

    Attributes:
        cfg: the completed config.
        folder: where it goes.
        parsed: the config that the model was built from.
        resume: the checkpoint that it continues from, None for a new run.
        left_out: what is left out of the images, a line each.
    """

    cfg: DictConfig
    folder: RunFolder
    trainer: Trainer
    recorder: Recorder
    data: PretrainData
    model: LightningModule
    parsed: DictConfig
    resume: Path | None
    left_out: list[str]

    def fit(self) -> Path:
        """Trains, evaluates and writes the summary; returns the run's folder.

        Raises:
            Interrupted: by Ctrl-C or a signal; running it again continues it.
            RunStopped: it had to end, for a reason that the message tells.
        """
        try:
            with _memory_named(self.cfg):
                self._train()
        except UnreadableImage as error:
            raise RunStopped(
                f"{error}. data.on_error=skip leaves such images out; {MENDED}"
            ) from error
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise RunStopped(f"{error}: no room on the disk; {MENDED}") from error
        except Interrupted:
            raise
        except KeyboardInterrupt as interrupt:
            raise Interrupted(self._interrupted) from interrupt
        finally:
            end_workers()
            self.folder.leave()
        return self.folder.path

    def _train(self) -> None:
        cfg, trainer, data = self.cfg, self.trainer, self.data
        if trainer.is_global_zero:
            print("\n".join(introduction(self)), flush=True)
        # Evaluating, or not, must not change what is drawn in training.
        seed_everything(cfg.seed, workers=True)
        started = time.time()
        try:
            with warnings.catch_warnings(), ended_together(trainer):
                # An epoch is taken up in its middle on purpose, by a loader that knows where.
                warnings.filterwarnings("ignore", ".*checkpoint that ended before the epoch ended")
                trainer.fit(self.model, datamodule=data, ckpt_path=self.resume)
        except SystemExit as exit_:  # how Lightning ends on signals
            told = self.callback(StopOnSignal).signum or signal.SIGINT
            raise Interrupted(self._interrupted, told) from exit_
        finally:
            # In an error of the validation Lightning ends the workers of that alone.
            trainer.fit_loop.teardown()
            end_loggers(trainer)
        if trainer.interrupted:
            raise KeyboardInterrupt
        if trainer.is_global_zero:
            data.trainer = None  # all images, not this process's share
            trained = self._knn() if self._measures_knn else {}
            draw_curves({cfg.name: self.recorder.history}, self.folder.curves, cfg.name)
            summary = summary_of(self, trained, started)
            write_json(self.folder.summary, rounded(summary))
            self.folder.previous_checkpoint.unlink(missing_ok=True)
            print(closing(summary, self.folder), *chance_notes(self, summary), sep="\n", flush=True)

    def callback(self, kind: type[Callback]) -> Any:
        """The run's callback of a kind."""
        return next(found for found in self.trainer.callbacks if type(found) is kind)

    @property
    def _interrupted(self) -> str:
        if not self.cfg.checkpoint.enabled:
            return "interrupted; nothing was saved, by checkpoint.enabled=false"
        if not self.cfg.auto_resume.enabled:
            return f"interrupted; with auto_resume.enabled=true it continues {self.folder.path}"
        return f"interrupted; the same command continues {self.folder.path}"

    @property
    def world_size(self) -> int:
        return self.trainer.num_devices * self.trainer.num_nodes

    @property
    def hardware(self) -> str:
        return hardware(self.trainer.strategy.root_device, self.world_size)

    @property
    def _measures_knn(self) -> bool:
        settings = self.cfg.knn_eval
        wanted = settings.enabled and settings.offline
        # solo-learn's own methods have a probe always.
        labelled = getattr(self.model, "has_probe", True)
        return wanted and self.data.val is not None and labelled

    def _knn(self) -> dict[str, float]:
        """Of the trained encoder; that of the untrained one is left to the recorder."""
        settings, device = self.cfg.knn_eval, self.trainer.strategy.root_device
        models = [self.model]
        if not self.recorder.untrained:  # earlier versions measured it before training
            models.append(build_model(self.parsed))
        found = offline_knn(models, self.data, device, settings.k, settings.distance_func)
        if len(found) > 1:
            self.recorder.untrained = found[1]
        return found[0]


def prepare(cfg: DictConfig, images: tuple[ImageSet, ImageSet | None] | None = None) -> Run | Path:
    """Checks a config, loads its data, builds its model and, all being well, makes its folder.

    Args:
        cfg: a config as composed by Hydra, or a plain one with the same keys.
        images: to train on, and to validate on or None, in place of those that ``cfg.data`` names.

    Returns:
        The run, or the folder of one that had finished before. Until the run is fitted, or this
        process ends, no other one can train in its folder.

    Raises:
        ValueError, OSError: a config, data or an image that do not fit, by name; a folder that
            another process trains in.
        RunStopped: memory that is short.
    """
    end_with_launcher()
    cfg = complete(cfg)
    folder = RunFolder(cfg)
    if folder.finished:
        if process_rank() == 0:
            print("\n".join(finished_before(folder)), flush=True)
        return folder.path
    try:
        if process_rank() == 0:
            folder.take()
        with _memory_named(cfg):
            return _prepare(cfg, folder, images)
    except BaseException:
        folder.leave()
        raise


def _prepare(
    cfg: DictConfig, folder: RunFolder, images: tuple[ImageSet, ImageSet | None] | None
) -> Run:
    resume = checkpoint_to_resume(cfg, folder)
    recorder, saver = Recorder(folder), Saver(folder)
    trainer = build_trainer(cfg, folder, recorder, saver, resume.first_step if resume else 0)
    check_processes(trainer)
    world_size = trainer.num_devices * trainer.num_nodes
    recorder.images_per_batch = cfg.optimizer.batch_size * world_size
    parsed = parse(cfg, world_size)
    device = trainer.strategy.root_device
    images = images or read_images(parsed.data)
    left_out = [note for found in images if found for note in found.notes]
    if cfg.data.on_error == "skip":
        images, unreadable = readable_only(images, folder.unreadable)
        left_out += unreadable
    check_limits(
        parsed,
        train_images=len(images[0]),
        val_images=len(images[1]) if images[1] else 0,
        world_size=world_size,
    )
    named = zip(("train", "val"), images, strict=True)
    saver.images = {split: found.digest() for split, found in named if found}
    saver.classes = images[0].classes
    if resume:
        resume.check_images(saver.images)
    data = PretrainData(parsed, *images, device, trainer.num_devices)
    data.check_size(world_size)
    data.choose_loader()
    # Else Lightning warns of epochs that are shorter than the time between two logs.
    batches = batches_per_epoch(parsed, len(images[0]), recorder.images_per_batch)
    trainer.log_every_n_steps = min(trainer.log_every_n_steps, batches)

    model = build_model(parsed)
    if cfg.on_nonfinite == "skip" and not hasattr(model, "step_left_out"):
        raise ValueError(f"on_nonfinite=skip: solo-learn's own {cfg.method} must stop")
    if cfg.analysis.enabled:
        check_projector(model)
    if trainer.is_global_zero:
        folder.create(model.cfg)
    path = resume.path if resume else None
    return Run(cfg, folder, trainer, recorder, data, model, parsed, path, left_out)


def build_model(parsed: DictConfig) -> LightningModule:
    """The untrained model of a parsed config, which is not changed: the same at every call.

    Raises:
        ValueError: settings that the method refuses, by name.
    """
    seed_everything(parsed.seed, workers=True)
    # solo-learn says so of every schedule by steps; a run here goes on with its own.
    with refusals_named(parsed.method), without_logged("Using scheduler_interval=step"):
        model = find_method(parsed.method)(parsed.copy())
    if not parsed.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    return model


@contextmanager
def _memory_named(cfg: DictConfig) -> Iterator[None]:
    """Within, memory that is short ends a run by what it can be spared with."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = memory_fault(error)
        if reason is None:
            raise
        raise RunStopped(
            f"out of memory ({reason}). With more of it free, or with fewer data.num_workers or "
            "data.loader=workers, the same command goes on from the last checkpoint. Less is "
            f"taken by optimizer.batch_size below {cfg.optimizer.batch_size}, smaller crops "
            "(augmentations.0.crop_size) and on a GPU by precision=bf16-mixed: that is another "
            "run, from its beginning"
        ) from error


def pretrain(cfg: DictConfig) -> Path:
    """Trains what ``cfg`` describes; goes on where an interrupted run of it stopped.

    See :func:`prepare` and :meth:`Run.fit`. If the run had finished before, nothing is trained.

    Returns:
        The run's folder.
    """
    run = prepare(cfg)
    return run if isinstance(run, Path) else run.fit()
