"""Lightning's Trainer and loggers, from a completed config."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf

from simco_methods.analysis.during import DuringTraining
from simco_methods.compiling import CompileForwards
from simco_methods.config.schema import TRAINER_KEYS
from simco_methods.config.spelling import runs_on_cpu
from simco_methods.data import has_validation
from simco_methods.runner.bar import TrainingBar
from simco_methods.runner.finite import FiniteGuard
from simco_methods.runner.folder import RunFolder
from simco_methods.runner.rank import process_rank
from simco_methods.runner.recorder import Recorder
from simco_methods.runner.saver import Saver, WholeFiles
from simco_methods.runner.stopping import StopOnSignal


def build_trainer(
    cfg: DictConfig, folder: RunFolder, recorder: Recorder, saver: Saver, first_step: int
) -> Trainer:
    """The Trainer of a run: Lightning's keys in ``cfg``, our loggers and callbacks.

    Args:
        cfg: a completed config.
        folder: of the run.
        recorder, saver: of the run.
        first_step: where its curves go on; what an earlier start drew beyond is forgotten.
    """
    # Lightning's notes on missing GPUs and loggers, and warnings of its own use of torch and of few
    # workers, whose number a run says itself; other warnings stay.
    for message in (".*isinstance.treespec.*", ".*does not have many workers.*"):
        warnings.filterwarnings("ignore", message=message)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    plain = OmegaConf.to_container(cfg)
    settings = {key: plain[key] for key in TRAINER_KEYS if key in plain}
    if settings["sync_batchnorm"] and runs_on_cpu(cfg):
        settings["sync_batchnorm"] = False
        if cfg.devices > 1 and process_rank() == 0:
            print("sync_batchnorm needs GPUs: each process normalises its own batch", flush=True)
    bar = settings.pop("enable_progress_bar", None) is not False and process_rank() == 0
    if not has_validation(cfg.data):
        settings["limit_val_batches"] = 0
    settings.setdefault("enable_model_summary", False)  # logged, and so not seen
    callbacks: list[Callback] = [
        StopOnSignal(),
        FiniteGuard(folder, cfg.on_nonfinite == "skip"),
        LearningRateMonitor(logging_interval="step"),
        recorder,
        saver,
    ]
    if bar:
        callbacks.append(TrainingBar())
    if cfg.performance.compile:
        callbacks.append(CompileForwards())
    if cfg.analysis.enabled:
        callbacks.append(DuringTraining(cfg, folder.path / "analysis"))
    plugins: list[Any] = [WholeFiles()]
    try:
        if SLURMEnvironment.detect():
            # Lightning's own requeueing saves wherever a step is interrupted.
            plugins.append(SLURMEnvironment(auto_requeue=False))
        return Trainer(
            **settings,
            enable_progress_bar=False,  # Lightning's, which ends with each epoch
            use_distributed_sampler=False,  # the sampler shares the images out itself
            logger=_loggers(cfg, folder, first_step),
            callbacks=callbacks,
            plugins=plugins,
            default_root_dir=folder.path,
        )
    except KeyError as error:
        raise ValueError(f"the launcher's environment lacks {error}") from error
    except (MisconfigurationException, ImportError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"Lightning refuses these settings: {error}") from error


def end_loggers(trainer: Trainer) -> None:
    """Ends the run's W&B run, which the next job of a sweep would otherwise go on with."""
    if trainer.is_global_zero:
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                logger.experiment.finish()


def _loggers(cfg: DictConfig, folder: RunFolder, first_step: int) -> list[Any]:
    curves = TensorBoardLogger(
        folder.path,
        name="tensorboard",
        version="",
        default_hp_metric=False,
        purge_step=first_step,
    )
    curves.hparams.update(OmegaConf.to_container(cfg))  # which it writes to hparams.yaml
    loggers: list[Any] = [curves]
    if cfg.wandb.enabled:
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
