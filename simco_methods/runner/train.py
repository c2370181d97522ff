"""One pretraining run, from a config to its folder."""

from __future__ import annotations

import datetime
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import TensorBoardLogger
from omegaconf import DictConfig, OmegaConf

from simco_methods.config import complete, parse, runs_on_cpu
from simco_methods.config.schema import TRAINER_KEYS
from simco_methods.data import PretrainData
from simco_methods.host import HOST
from simco_methods.methods import METHODS
from simco_methods.runner.evaluate import offline_knn
from simco_methods.runner.folder import RunFolder, write_json
from simco_methods.runner.machine import hardware, peak_memory_mib, versions
from simco_methods.runner.plots import draw_curves
from simco_methods.runner.recorder import Recorder


def pretrain(cfg: DictConfig) -> Path:
    """Trains what ``cfg`` describes; goes on where an interrupted run of it stopped.

    Args:
        cfg: a config as composed by Hydra, or a plain one with the same keys.

    Returns:
        The run's folder. If the run had finished before, nothing is trained.

    Raises:
        ValueError, FileNotFoundError: a config or data that do not fit, before anything is trained.
        KeyboardInterrupt: the run was interrupted; running it again continues it.
    """
    cfg = complete(cfg)
    folder = RunFolder(cfg)
    main_process = _rank() == 0
    if folder.finished:
        if main_process:
            print(f"finished before, nothing to do: {folder.path}", flush=True)
        return folder.path

    recorder = Recorder(folder)
    trainer = _trainer(cfg, folder, recorder)
    world_size = trainer.num_devices * trainer.num_nodes
    parsed = parse(cfg, world_size)
    data = PretrainData.from_config(parsed)
    recorder.images_per_batch = cfg.optimizer.batch_size * world_size
    resume = _checkpoint_to_resume(cfg, folder)
    if main_process:
        folder.create()

    seed_everything(cfg.seed, workers=True, verbose=False)
    model = METHODS[cfg.method](parsed)
    if not cfg.performance.disable_channel_last:
        model = model.to(memory_format=torch.channels_last)
    if main_process:
        print("\n".join(_introduction(model, data, world_size, folder, resume)), flush=True)

    measures_knn = cfg.knn_eval.offline and data.val is not None and model.has_probe
    if measures_knn and main_process and resume is None:
        recorder.untrained = _knn(model, data, cfg, trainer)
    # Evaluating, or not, must not change what is drawn in training.
    seed_everything(cfg.seed, workers=True, verbose=False)
    started = time.time()
    trainer.fit(model, datamodule=data, ckpt_path=resume)
    if trainer.interrupted or trainer.current_epoch < cfg.max_epochs and not trainer.fast_dev_run:
        raise KeyboardInterrupt(f"interrupted; the same command continues {folder.path}")

    if trainer.is_global_zero:
        data.trainer = None  # all images, not this process's share
        trained = _knn(model, data, cfg, trainer) if measures_knn else {}
        draw_curves({cfg.name: recorder.history}, folder.curves, cfg.name)
        summary = _summary(cfg, model, recorder, trained, world_size, started)
        write_json(folder.summary, summary)
        print(_closing(summary, folder), flush=True)
    return folder.path


def _rank() -> int:
    for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def _trainer(cfg: DictConfig, folder: RunFolder, recorder: Recorder) -> Trainer:
    # Lightning's notes on missing GPUs and loggers; its warnings stay.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    plain = OmegaConf.to_container(cfg)
    settings = {key: plain[key] for key in TRAINER_KEYS if key in plain}
    if settings["sync_batchnorm"] and runs_on_cpu(cfg):
        settings["sync_batchnorm"] = False
        if cfg.devices > 1 and _rank() == 0:
            print("sync_batchnorm needs GPUs: each process normalises its own batch", flush=True)
    if _rank() > 0 or not sys.stdout.isatty():
        settings.setdefault("enable_progress_bar", False)
    return Trainer(
        **{**settings, "use_distributed_sampler": False},
        logger=_loggers(cfg, folder),
        callbacks=[recorder, LearningRateMonitor(logging_interval="step")],
        default_root_dir=folder.path,
    )


def _checkpoint_to_resume(cfg: DictConfig, folder: RunFolder) -> str | None:
    if cfg.resume_from_checkpoint is not None:
        path = Path(cfg.resume_from_checkpoint)
        if not path.is_file():
            raise FileNotFoundError(f"resume_from_checkpoint={path}: there is no such file")
        return str(path)
    if cfg.auto_resume.enabled and folder.last_checkpoint.is_file():
        return str(folder.last_checkpoint)
    return None


def _loggers(cfg: DictConfig, folder: RunFolder) -> list[Any]:
    loggers: list[Any] = [
        TensorBoardLogger(folder.path, name="tensorboard", version="", default_hp_metric=False)
    ]
    if cfg.wandb.enabled:
        from lightning.pytorch.loggers import WandbLogger

        loggers.append(
            WandbLogger(
                name=cfg.name,
                project=cfg.wandb.project,
                entity=cfg.wandb.entity,
                offline=cfg.wandb.offline,
                save_dir=folder.path,
                # The same id after an interruption: one run there as here.
                id=f"{cfg.name}-{folder.fingerprint}",
                resume="allow",
            )
        )
    return loggers


def _knn(model, data: PretrainData, cfg: DictConfig, trainer: Trainer) -> dict[str, float]:
    device = trainer.strategy.root_device
    return offline_knn(model, data, device, cfg.knn_eval.k, cfg.knn_eval.distance_func)


def _introduction(
    model, data: PretrainData, world_size: int, folder: RunFolder, resume: str | None
) -> list[str]:
    cfg = model.cfg
    batch, accumulated = cfg.optimizer.batch_size * world_size, cfg.accumulate_grad_batches
    parameters = sum(p.numel() for p in model.backbone.parameters()) / 1e6
    lines = [
        f"{cfg.name}: {cfg.method} on {cfg.data.dataset}, {cfg.backbone.name} ({parameters:.1f} M "
        f"parameters), host {HOST}, seed {cfg.seed}",
        f"  {len(data.train)} training images, {len(data.val) if data.val else 'none'} to validate "
        f"on; {hardware()}",
        f"  effective batch {batch * accumulated} ({cfg.optimizer.batch_size} x {world_size} "
        f"process(es) x {accumulated} accumulated), learning rate {model.lr:g}, "
        f"{model.negatives_per_anchor(batch)} negatives per anchor",
        f"  folder {folder.path}",
    ]
    if accumulated > 1:
        lines.append("  note: accumulating gradients adds no negatives")
    if resume:
        lines.append(f"  continues from {resume}")
    return lines


def _summary(
    cfg: DictConfig,
    model,
    recorder: Recorder,
    trained: dict[str, float],
    world_size: int,
    started: float,
) -> dict[str, Any]:
    last = recorder.history[-1]
    speeds = sorted(row["images_per_second"] for row in recorder.history)
    return {
        "name": cfg.name,
        "method": cfg.method,
        "symmetric": bool(cfg.method_kwargs.get("symmetric", cfg.method == "simco")),
        "dataset": cfg.data.dataset,
        "backbone": cfg.backbone.name,
        "seed": cfg.seed,
        "epochs": len(recorder.history),
        "fingerprint": recorder.folder.fingerprint,
        "host": HOST,
        # Of the last epoch, never of the best one.
        "last_epoch": {k: v for k, v in last.items() if k.startswith(("train_", "val_"))},
        **trained,
        **{f"untrained_{name}": value for name, value in recorder.untrained.items()},
        "seconds": round(recorder.seconds, 1),
        "images_per_second": speeds[len(speeds) // 2],
        "peak_memory_mib": peak_memory_mib(),
        "processes": world_size,
        "hardware": hardware(),
        "versions": versions(),
        "started": datetime.datetime.fromtimestamp(started).isoformat(timespec="seconds"),
    }


def _closing(summary: dict[str, Any], folder: RunFolder) -> str:
    parts = [f"loss {summary['last_epoch']['train_nce_loss']:.4f}"]
    if "val_acc1" in summary["last_epoch"]:
        parts.append(f"online accuracy {summary['last_epoch']['val_acc1']:.2f} %")
    if "knn_acc1" in summary:
        parts.append(f"kNN accuracy {summary['knn_acc1']:.2f} %")
    if "untrained_knn_acc1" in summary:
        parts.append(f"untrained {summary['untrained_knn_acc1']:.2f} %")
    return (
        f"finished {summary['name']} in {summary['seconds']:.0f} s: {', '.join(parts)}; "
        f"see {folder.path}"
    )
