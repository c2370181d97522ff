"""Small configs, batches and trainers that many tests start from."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import lightning.pytorch as pl
import torch
from hydra import compose, initialize
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from simco_methods.methods import METHODS

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "solo_configs"
LEAVES = sorted(
    f"{path.parent.name}/{path.stem}"
    for path in CONFIGS.glob("*/*.yaml")
    if path.parent.name not in ("recipe", "dataset", "contrast", "augmentations", "tables")
    and path.stem != "linear"
)
# Of main_linear.py, and with methods of solo-learn's.
LINEAR = sorted(f"{path.parent.name}/linear" for path in CONFIGS.glob("[!r]*/linear.yaml"))
BASELINES = sorted(
    f"{path.parents[1].name}/baselines/{path.stem}"
    for path in CONFIGS.glob("*/baselines/*.yaml")
    if path.parents[1].name != "contrast"
)
# Every method, and its symmetric variant where it has one.
QUEUED = ("mocov2", "decoupled_moco")
VARIANTS = [(name, False) for name in METHODS] + [(name, True) for name in ("simmoco", *QUEUED)]
# Without labels there is no supervised training.
UNLABELLED = [variant for variant in VARIANTS if variant[0] != "supervised_hardness"]
# What a method trains beside backbone and online classifier: a projector, unless it is here.
MODULES = {
    **dict.fromkeys(("simsiam_hardness", "byol_hardness"), ["projector", "predictor"]),
    "supervised_hardness": ["head"],
}
# Of files, folders and runs, as they come from a shell.
NAMES = [
    "größe", "日本", "my photos (2)", "a,b", "it's", "a=b", "{x}", "~x", "#1", "it's #1", "a b",
    " a ", "$x", 'a"b', "a:b", "a\\b", "a\\", "1e3", "true", "5", "*.jpg", "@x", "a, b", "[a",
    "-1", "&x", "!x", "%x", "a;b", "a|b", "x'y'", "\\$x",
]  # fmt: skip
TINY_VIT = {"name": "vit_tiny", "kwargs": {"img_size": 16, "patch_size": 8}}
TINY_RESNET = {"name": "micro_resnet", "kwargs": {"channels": [8, 8, 16, 16]}}


def compose_config(name: str, *overrides: str) -> DictConfig:
    """The config as an app of Hydra sees it, found through the pack's plugin."""
    return _composed(name, *overrides).copy()


@functools.cache
def _composed(name: str, *overrides: str) -> DictConfig:
    GlobalHydra.instance().clear()
    with initialize(version_base="1.3", config_path=None):
        cfg = compose(name, overrides=list(overrides))
    OmegaConf.set_struct(cfg, False)
    return cfg


def model_config(method: str, symmetric: bool = False, **changes) -> DictConfig:
    """A parsed config with a small backbone on 16-pixel images of 10 classes."""
    cfg = {
        "method": method,
        "seed": 5,
        "max_epochs": 2,
        "backbone": dict(TINY_RESNET),
        "method_kwargs": {"proj_hidden_dim": 16, "proj_output_dim": 8},
        "momentum": {"base_tau": 0.99, "final_tau": 0.99, "classifier": False},
        "data": {
            "dataset": "digits",
            "num_classes": 10,
            "num_large_crops": 2,
            "num_small_crops": 0,
            "no_labels": False,
        },
        "optimizer": {
            "name": "sgd",
            "batch_size": 8,
            "lr": 0.1,
            "classifier_lr": 0.1,
            "weight_decay": 1e-4,
            "kwargs": {"momentum": 0.9},
        },
        "scheduler": {"name": "warmup_cosine", "warmup_epochs": 0},
        "knn_eval": {"enabled": False},
    }
    if symmetric:
        cfg["method_kwargs"]["symmetric"] = True
    if method in QUEUED:
        cfg["method_kwargs"]["queue_size"] = 20
    if "predictor" in MODULES.get(method, ()):
        cfg["method_kwargs"]["pred_hidden_dim"] = 16
    if "head" in MODULES.get(method, ()):
        cfg["method_kwargs"] = {}
    cfg = OmegaConf.create(cfg)
    for key, value in changes.items():
        OmegaConf.update(cfg, key.replace("__", "."), value, merge=False, force_add=True)
    return cfg


def build(method: str, symmetric: bool = False, seed: int = 0, **changes):
    torch.manual_seed(seed)
    return METHODS[method](model_config(method, symmetric, **changes))


def batch(count: int = 8, seed: int = 0, size: int = 16, labelled: bool = True):
    """``[indices, [view, view], targets]`` of random images."""
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(count, 3, size, size, generator=generator) for _ in range(2)]
    targets = torch.randint(0, 10, (count,), generator=generator)
    return [torch.arange(count), views, targets if labelled else torch.full((count,), -1)]


class Losses(pl.Callback):
    """Collects the loss of every batch in ``seen``."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, module, outputs, *_):
        self.seen.append(float(outputs["loss"]))


def quiet_trainer(max_epochs: int = 1, **options) -> pl.Trainer:
    """One CPU process that writes and says nothing."""
    return pl.Trainer(
        **{
            "accelerator": "cpu",
            "devices": 1,
            "max_epochs": max_epochs,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "log_every_n_steps": 1,
            **options,
        }
    )


def run_script(*command, cwd: Path, path=(), **env) -> subprocess.CompletedProcess:
    """``python COMMAND`` in ``cwd``, with ``path`` and the pack in front of PYTHONPATH."""
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**_environment(*path), "SIMCO_HOST": "", **env},
        capture_output=True,
        text=True,
    )


def start_pretraining(
    folder: Path, *arguments, program=("-m", "simco_methods.pretrain"), **env
) -> subprocess.Popen:
    """Starts ``simco-pretrain ARGUMENTS``, or another ``program`` of Python, in ``folder``.

    It leads a process group of its own, so that it can be told to end as by a terminal.
    """
    return subprocess.Popen(
        [sys.executable, *map(str, (*program, *arguments))],
        cwd=folder,
        env={**_environment(), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A suite that was started in the background ignores SIGINT, and would pass that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def _environment(*path: Path) -> dict[str, str]:
    parts = [*map(str, path), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(parts)}


def processes():
    """(number, parent, group) of all that run; those that ended and were not waited for do not."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8") as file:
            state, parent, group = file.read().rpartition(")")[2].split()[:3]
            if state not in "ZX":
                yield int(name), int(parent), int(group)


def group_members(group: int) -> list[int]:
    """The processes of a group that run."""
    return [number for number, _, other in processes() if other == group]


def wait_for_group_to_end(group: int, seconds: float) -> None:
    """Waits until no process of a group runs; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while group_members(group) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert group_members(group) == []
