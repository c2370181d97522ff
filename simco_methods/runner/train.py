"""One pretraining run, from a config to its folder."""

from __future__ import annotations

import datetime
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from omegaconf import DictConfig

from simco_methods.analysis.during import check_projector
from simco_methods.config import complete, parse, refusals_named
from simco_methods.data import ImageSet, PretrainData, read_images
from simco_methods.data.draws import ViewSettings
from simco_methods.files import write_json
from simco_methods.host import HOST
from simco_methods.machine import hardware, peak_memory_mib, versions
from simco_methods.methods import find_method
from simco_methods.runner.evaluate import offline_knn
from simco_methods.runner.folder import RunFolder, check_checkpoint
from simco_methods.runner.plots import LOSSES, draw_curves
from simco_methods.runner.recorder import Recorder
from simco_methods.runner.trainer import build_trainer, end_loggers, process_rank


@dataclass
class Run:
    """A run whose config and data have been checked, ready to be trained.

    Attributes:
        cfg: the completed config.
        folder: where it goes.
        resume: the checkpoint that it continues from, None for a new run.
    """

    cfg: DictConfig
    folder: RunFolder
    trainer: Trainer
    recorder: Recorder
    data: PretrainData
    model: LightningModule
    resume: str | None

    def fit(self) -> Path:
        """Trains, evaluates and writes the summary; returns the run's folder.

        Raises:
            KeyboardInterrupt: the run was interrupted; running it again continues it.
        """
        cfg, trainer, data = self.cfg, self.trainer, self.data
        if trainer.is_global_zero:
            print("\n".join(self._introduction()), flush=True)
            if self._measures_knn and self.resume is None:
                self.recorder.untrained = self._knn()
        # Evaluating, or not, must not change what is drawn in training.
        seed_everything(cfg.seed, workers=True)
        started = time.time()
        message = f"interrupted; the same command continues {self.folder.path}"
        try:
            trainer.fit(self.model, datamodule=data, ckpt_path=self.resume)
        except SystemExit as exit_:  # how Lightning ends on Ctrl-C and on SIGTERM
            raise KeyboardInterrupt(message) from exit_
        finally:
            end_loggers(trainer)
        if trainer.interrupted:
            raise KeyboardInterrupt(message)
        if trainer.is_global_zero:
            data.trainer = None  # all images, not this process's share
            trained = self._knn() if self._measures_knn else {}
            draw_curves({cfg.name: self.recorder.history}, self.folder.curves, cfg.name)
            summary = self._summary(trained, started)
            write_json(self.folder.summary, summary)
            print(_closing(summary, self.folder), flush=True)
        return self.folder.path

    @property
    def _world_size(self) -> int:
        return self.trainer.num_devices * self.trainer.num_nodes

    @property
    def _hardware(self) -> str:
        return hardware(self.trainer.strategy.root_device, self._world_size)

    @property
    def _measures_knn(self) -> bool:
        settings = self.cfg.knn_eval
        wanted = settings.enabled and settings.offline
        # solo-learn's own methods have a probe always.
        labelled = getattr(self.model, "has_probe", True)
        return wanted and self.data.val is not None and labelled

    def _knn(self) -> dict[str, float]:
        settings, device = self.cfg.knn_eval, self.trainer.strategy.root_device
        return offline_knn(self.model, self.data, device, settings.k, settings.distance_func)

    def _introduction(self) -> list[str]:
        cfg, model, data = self.model.cfg, self.model, self.data
        size, accumulated = cfg.optimizer.batch_size, cfg.accumulate_grad_batches
        batch = size * self._world_size
        parameters = sum(p.numel() for p in model.backbone.parameters()) / 1e6
        negatives = ""
        if hasattr(model, "negatives_per_anchor"):  # not with solo-learn's own methods
            negatives = f", {model.negatives_per_anchor(batch)} negatives per anchor"
        lines = [
            f"{cfg.name}: {cfg.method} on {cfg.data.dataset}, {cfg.backbone.name} "
            f"({parameters:.1f} M parameters), host {HOST}, seed {cfg.seed}",
            f"  {len(data.train)} training images, {len(data.val) if data.val else 'none'} to "
            f"validate on; {self._hardware}",
            f"  effective batch {batch * accumulated} ({size} x {self._world_size} process(es) x "
            f"{accumulated} accumulated), learning rate {model.lr:g}{negatives}",
            f"  {data.loader}",
            f"  folder {self.folder.path}",
        ]
        if cfg.debug_augmentations:
            lines += [f"  {ViewSettings.from_config(view)}" for view in cfg.augmentations]
        if accumulated > 1:
            lines.append("  note: accumulating gradients adds no negatives")
        if self.resume:
            lines.append(f"  continues from {self.resume}")
        return lines

    def _summary(self, trained: dict[str, float], started: float) -> dict[str, Any]:
        cfg, recorder = self.cfg, self.recorder
        last = recorder.history[-1]
        return {
            "name": cfg.name,
            "method": cfg.method,
            "symmetric": bool(cfg.method_kwargs.get("symmetric", cfg.method == "simco")),
            "dataset": cfg.data.dataset,
            "backbone": cfg.backbone.name,
            "seed": cfg.seed,
            "epochs": len(recorder.history),
            "fingerprint": self.folder.fingerprint,
            "host": HOST,
            # Of the last epoch, never of the best one.
            "last_epoch": {k: v for k, v in last.items() if k.startswith(("train_", "val_"))},
            **trained,
            **{f"untrained_{name}": value for name, value in recorder.untrained.items()},
            "seconds": round(recorder.seconds, 1),
            "images_per_second": statistics.median(
                r["images_per_second"] for r in recorder.history
            ),
            "peak_memory_mib": peak_memory_mib(self.trainer.strategy.root_device),
            "processes": self._world_size,
            "loader": "workers" if self.data.resident is None else "device",
            "compiled": cfg.performance.compile,
            "hardware": self._hardware,
            "versions": versions(),
            "started": datetime.datetime.fromtimestamp(started).isoformat(timespec="seconds"),
        }


def prepare(cfg: DictConfig, images: tuple[ImageSet, ImageSet | None] | None = None) -> Run | Path:
    """Checks a config, loads its data, builds its model and, all being well, makes its folder.

    Args:
        cfg: a config as composed by Hydra, or a plain one with the same keys.
        images: to train on, and to validate on or None, in place of those that ``cfg.data`` names.

    Returns:
        The run, or the folder of one that had finished before.

    Raises:
        ValueError, OSError: a config, data or an image that do not fit, by name.
    """
    cfg = complete(cfg)
    folder = RunFolder(cfg)
    if folder.finished:
        if process_rank() == 0:
            print(f"finished before, nothing to do: {folder.path}", flush=True)
            if cfg.analysis.enabled and not (folder.path / "analysis").exists():
                print(f"it was not analysed: simco-analyze {folder.last_checkpoint}", flush=True)
        return folder.path
    resume = _checkpoint_to_resume(cfg, folder)
    recorder = Recorder(folder)
    trainer = build_trainer(cfg, folder, recorder)
    world_size = trainer.num_devices * trainer.num_nodes
    recorder.images_per_batch = cfg.optimizer.batch_size * world_size
    parsed = parse(cfg, world_size)
    device = trainer.strategy.root_device
    images = images or read_images(parsed.data)
    data = PretrainData(parsed, *images, device, trainer.num_devices)
    data.check_size(world_size)
    data.choose_loader()

    seed_everything(cfg.seed, workers=True)
    with refusals_named(cfg.method):
        model = find_method(cfg.method)(parsed)
    if cfg.analysis.enabled:
        check_projector(model)
    if not cfg.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    if trainer.is_global_zero:
        folder.create(parsed)
    return Run(cfg, folder, trainer, recorder, data, model, resume)


def pretrain(cfg: DictConfig) -> Path:
    """Trains what ``cfg`` describes; goes on where an interrupted run of it stopped.

    See :func:`prepare` and :meth:`Run.fit`. If the run had finished before, nothing is trained.

    Returns:
        The run's folder.
    """
    run = prepare(cfg)
    return run if isinstance(run, Path) else run.fit()


def _checkpoint_to_resume(cfg: DictConfig, folder: RunFolder) -> str | None:
    if cfg.resume_from_checkpoint is not None:
        path = Path(cfg.resume_from_checkpoint)
        if not path.is_file():
            raise FileNotFoundError(f"resume_from_checkpoint={path}: there is no such file")
        check_checkpoint(path, cfg)
        return str(path)
    last = folder.last_checkpoint
    if not cfg.auto_resume.enabled or not last.is_file():
        return None
    hours = (time.time() - last.stat().st_mtime) / 3600
    limit = cfg.auto_resume.max_hours
    if limit is not None and hours > limit:
        print(f"{last} is {hours:.1f} hours old (auto_resume.max_hours={limit}): starts anew")
        return None
    try:
        check_checkpoint(last, cfg)
    except ValueError as error:
        raise ValueError(f"{error}; remove it to start anew") from error
    return str(last)


def _closing(summary: dict[str, Any], folder: RunFolder) -> str:
    last = summary["last_epoch"]
    parts = [f"loss {last[name]:.4f}" for name in LOSSES if name in last]
    if "val_acc1" in last:
        parts.append(f"online accuracy {last['val_acc1']:.2f} %")
    if "knn_acc1" in summary:
        parts.append(f"kNN accuracy {summary['knn_acc1']:.2f} %")
    if "untrained_knn_acc1" in summary:
        parts.append(f"untrained {summary['untrained_knn_acc1']:.2f} %")
    return (
        f"finished {summary['name']} in {summary['seconds']:.0f} s: {', '.join(parts)}; "
        f"see {folder.path}"
    )
