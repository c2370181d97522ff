"""From images to weights: ``simco-pretrain`` against its bare step, and solo-learn's script."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import lightning.pytorch as pl
import torch
from hydra import compose, initialize_config_module
from omegaconf import open_dict

from simco_methods.benchmark.steps import BareStep, default_backbone, fixed_batch
from simco_methods.benchmark.timing import Comparison, alternate, wait
from simco_methods.data import folder_images
from simco_methods.runner.train import prepare


def overrides(folder: str, batch: int) -> list[str]:
    """Of a config of class folders with images of CIFAR's size."""
    return [
        "augmentations=crop32",
        f"backbone.name={default_backbone()}",
        f"data.train_path={folder}/train",
        f"data.val_path={folder}/test",
        f"optimizer.batch_size={batch}",
        "scheduler.warmup_epochs=0",
    ]


class _BareBlocks(pl.Callback):
    """Before each epoch times the bare step, on a batch of noise of the same shape."""

    def __init__(self, steps: int):
        self.steps, self.seconds = steps, []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not hasattr(self, "bare"):
            device = pl_module.device
            self.bare = BareStep(pl_module, fixed_batch(pl_module.cfg, device), device)
            self.bare()
        wait()
        start = time.perf_counter()
        for _ in range(self.steps):
            self.bare()
        wait()
        self.seconds.append((time.perf_counter() - start) / self.steps)


def against_bare_step(folder: str | None, quick: bool = False) -> Iterator[Comparison]:
    """An epoch of ``simco-pretrain``, without validation, a batch, in turns with the bare step."""
    batch, steps, epochs = (16, 3, 2) if quick else (256, 16, 6)
    config = "digits/simco" if folder is None else "custom/simco"
    chosen = [f"optimizer.batch_size={batch}"] if folder is None else overrides(folder, batch)
    with tempfile.TemporaryDirectory() as out:
        with initialize_config_module(version_base="1.3", config_module="solo_configs"):
            cfg = compose(config, overrides=[*chosen, f"max_epochs={epochs}"])
        with open_dict(cfg):
            cfg.output_dir, cfg.limit_train_batches = out, steps
            cfg.knn_eval.offline = False
            cfg.limit_val_batches, cfg.num_sanity_val_steps = 1, 0
        run = prepare(cfg)
        blocks = _BareBlocks(steps)
        run.trainer.callbacks.insert(0, blocks)
        run.fit()
        rates = [row["images_per_second"] for row in run.recorder.history]
    # The first epoch warms up.
    ours = [1000 * batch / rate for rate in rates[1:]]
    bare = [1000 * seconds for seconds in blocks.seconds[1:]]
    what = f"a batch of {batch} of simco-pretrain, {config}, {run.cfg.backbone.name}"
    target = None if quick else 0.9
    yield Comparison("epoch", what, "the bare step on one batch", ours, bare, "ms", target)


def against_solo_learn(folder: str, checkout: str, quick: bool = False) -> Iterator[Comparison]:
    """``simco-pretrain`` against solo-learn's own ``main_pretrain.py``, each a process.

    A batch's time is what more batches cost more: so neither starting nor validation counts, nor
    that simco-pretrain decodes all images once at its start, solo-learn each in every epoch.

    Raises:
        ValueError: a folder with fewer images than the batches need.
    """
    on_gpu = torch.cuda.is_available()
    batch, few, many, rounds = (16, 2, 6, 1) if quick else (256, 4, 44, 3)
    if on_gpu and not quick:
        few, many, rounds = 10, 190, 1
    images = len(folder_images(f"{folder}/train"))
    if images < many * batch:
        raise ValueError(f"{folder}/train has {images} images, {many * batch} are needed")
    common = [*overrides(folder, batch), "max_epochs=1", "checkpoint.enabled=false"]
    common += ["auto_resume.enabled=false", f"data.num_workers={os.cpu_count()}"]
    if not on_gpu:
        common += ["accelerator=cpu", "precision=32-true"]
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]

    common += ["+limit_val_batches=1"]

    def a_batch(script: list[str], host: str, path: list[str], *more: str) -> float:
        """Milliseconds of ``python SCRIPT``."""
        env = {**os.environ, "SIMCO_HOST": host, "PYTHONPATH": os.pathsep.join(path)}
        took = []
        for batches in (few, many):
            command = [*script, "--config-name", "custom/simco", *common, *more]
            command.append(f"+limit_train_batches={batches}")
            with tempfile.TemporaryDirectory() as out:
                start = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, *command], env=env, cwd=out, capture_output=True, text=True
                )
                took.append(time.perf_counter() - start)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
        return 1000 * (took[1] - took[0]) / (many - few)

    own = ["+output_dir=run", "+knn_eval.offline=false"]
    found = alternate(
        lambda: a_batch(["-m", "simco_methods.pretrain"], "builtin", paths, *own),
        lambda: a_batch([f"{checkout}/main_pretrain.py"], "solo-learn", [*paths, checkout]),
        rounds,
    )
    what = f"a batch of {batch} of simco-pretrain, {default_backbone()}, class folders"
    target = None if quick else 3.0 if on_gpu else 1.3
    other = "solo-learn's main_pretrain.py, same method and settings"
    yield Comparison("epoch", what, other, *found, "ms", target)
