"""From a config as written to the one that is trained: defaults, classes, crops, scaled rates."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError

from simco_methods.config.schema import check_config
from simco_methods.config.spelling import runs_on_cpu, spell_devices, spell_precision
from simco_methods.data import DATASETS
from simco_methods.data.folders import class_folders, image_files
from simco_methods.host import LeanMomentumMethod
from simco_methods.methods import METHODS, find_method
from simco_methods.methods.settings import check_settings

_DEFAULTS = {
    "seed": 5,
    "output_dir": None,
    "accelerator": "auto",
    "devices": 1,
    "strategy": "auto",
    "num_nodes": 1,
    "precision": "32-true",
    "resume_from_checkpoint": None,
    "debug_augmentations": False,
    "sync_batchnorm": False,
    "data.train_path": None,
    "data.val_path": None,
    "data.no_labels": False,
    "data.format": "image_folder",
    "data.fraction": -1,
    "data.download": False,
    "data.loader": "auto",
    "data.on_error": "raise",
    "data.train_images_per_class": None,
    "data.val_images_per_class": None,
    "knn_eval.enabled": True,
    "knn_eval.k": 20,
    "knn_eval.distance_func": "cosine",
    "knn_eval.offline": True,
    "performance.compile": False,
    "checkpoint.enabled": True,
    "checkpoint.dir": None,
    "checkpoint.frequency": 1,
    "checkpoint.keep_prev": False,
    "auto_resume.enabled": True,
    "auto_resume.max_hours": None,
    "analysis.enabled": False,
    "wandb.enabled": False,
    "wandb.entity": None,
    "wandb.project": "simco-methods",
    "wandb.offline": False,
}

# What a run may change without becoming another run: where and with what it is computed and seen.
_NOT_IDENTITY = (
    "name",
    "output_dir",
    "accelerator",
    "analysis",
    "auto_resume",
    "checkpoint",
    "resume_from_checkpoint",
    "debug_augmentations",
    "wandb",
    "data.loader",  # both draw the same views
    "data.num_workers",
    "data.download",
    "data.on_error",
    "performance.compile",
    "log_every_n_steps",
    "enable_progress_bar",
    "enable_model_summary",
    "num_sanity_val_steps",
)


def complete(cfg: DictConfig) -> DictConfig:
    """Checks a config and fills in the runner's defaults; the config that a run is known by.

    Raises:
        ValueError: see :func:`~simco_methods.config.schema.check_config`; an unknown method.
    """
    cfg = OmegaConf.create(OmegaConf.to_container(cfg, resolve=True))
    if "pretrained_feature_extractor" in cfg.keys():  # missing values are no members
        raise ValueError(
            "this is a config of solo-learn's main_linear.py, not one to pretrain with"
        )
    check_config(cfg)
    method = find_method(cfg.method)
    if cfg.method in METHODS:
        if "momentum" in cfg and not issubclass(method, LeanMomentumMethod):
            raise ValueError(f"momentum.*: {cfg.method} has no momentum encoder")
    else:
        _check_read_settings(cfg, method)
    cfg.pop("hydra", None)
    for key, value in _DEFAULTS.items():
        if OmegaConf.select(cfg, key) is None:
            OmegaConf.update(cfg, key, value, force_add=True)
    if cfg.optimizer.name in ("sgd", "lars"):
        momentum = OmegaConf.select(cfg, "optimizer.kwargs.momentum", default=0.9)
        OmegaConf.update(cfg, "optimizer.kwargs.momentum", momentum, force_add=True)
    on_cpu = runs_on_cpu(cfg)
    cfg.devices = spell_devices(cfg.devices, on_cpu)
    cfg.precision = spell_precision(cfg.precision, on_cpu)
    with refusals_named(cfg.method):
        return method.add_and_assert_specific_cfg(cfg)


def _check_read_settings(cfg: DictConfig, method: type) -> None:
    # solo-learn's own methods take any key below method_kwargs; those that they read are theirs.
    sources = (inspect.getsource(kind) for kind in method.__mro__ if kind.__module__[:5] == "solo.")
    known = sorted(set(re.findall(r"method_kwargs\.(\w+)", " ".join(sources))))
    given = OmegaConf.select(cfg, "method_kwargs") or {}
    check_settings(given, known, f"solo-learn's {cfg.method}", {})


@contextmanager
def refusals_named(method: str) -> Iterator[None]:
    """To complete or build a method of solo-learn's own within.

    Those check their settings by assertions without a message, or read a key that is not there.

    Raises:
        ValueError: with what was asserted, or which key is missing.
    """
    try:
        yield
    except (AssertionError, ConfigAttributeError) as error:
        if method in METHODS:
            raise
        if isinstance(error, ConfigAttributeError):
            reason = f"{error.full_key} is not set"
        else:
            reason = str(error) or traceback.extract_tb(error.__traceback__)[-1].line
        raise ValueError(f"solo-learn's {method} refuses the config: {reason}") from error


def fingerprint(cfg: DictConfig) -> str:
    """8 hex digits of everything in a completed config that makes one run another."""
    return digest(identity(cfg))


def digest(content: Any) -> str:
    """8 hex digits of plain values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def identity(cfg: DictConfig) -> dict[str, Any]:
    """The part of a completed config that :func:`fingerprint` covers, as dotted keys."""
    flat = flatten(OmegaConf.to_container(cfg))
    return {
        key: value
        for key, value in flat.items()
        if not any(key == name or key.startswith(f"{name}.") for name in _NOT_IDENTITY)
    }


def flatten(node: Any, path: str = "") -> dict[str, Any]:
    """Nested mappings and lists to ``{"a.b.0": value}``."""
    if isinstance(node, dict | list) and node:
        pairs = node.items() if isinstance(node, dict) else enumerate(node)
        return {
            key: value
            for name, child in pairs
            for key, value in flatten(child, f"{path}.{name}" if path else str(name)).items()
        }
    return {path: node}


def parse(cfg: DictConfig, world_size: int) -> DictConfig:
    """Adds what solo-learn's parsing adds: ``num_classes``, the crops, rates scaled to the batch.

    The learning rates are for 256 images and are scaled by batch_size * processes / 256, whatever
    the spelling of ``devices``.

    Args:
        cfg: a completed config; not changed.
        world_size: processes on all nodes.

    Returns:
        The config to build the model from.

    Raises:
        ValueError: small crops, or other than two views: the methods here contrast two. A method of
            solo-learn's own without labels.
    """
    cfg = cfg.copy()
    info = DATASETS[cfg.data.dataset]
    if info.num_classes is None:
        labelled = not cfg.data.no_labels
        cfg.data.num_classes = len(labelled_folders(cfg.data.train_path)) if labelled else 0
        if labelled and cfg.data.num_classes == 0:
            print(
                f"{cfg.data.train_path} has no class folders: training without labels, so without "
                "online accuracy (data.no_labels=true says so too)",
                flush=True,
            )
            cfg.data.no_labels = True
        cfg.data.num_classes = max(1, cfg.data.num_classes)
    else:
        cfg.data.num_classes = info.num_classes
    if cfg.data.no_labels and cfg.method not in METHODS:
        raise ValueError(
            f"solo-learn's {cfg.method} needs labels: without them its online classifier gives NaN"
        )
    sizes = {view.crop_size for view in cfg.augmentations}
    views = sum(view.num_crops for view in cfg.augmentations)
    if len(sizes) > 1 or views != 2:
        raise ValueError(
            f"augmentations give {views} views of {sorted(sizes)} pixels; {cfg.method} needs two "
            "views of one size (multi-crop is not supported)"
        )
    cfg.data.num_large_crops, cfg.data.num_small_crops = views, 0
    scale = cfg.optimizer.batch_size * world_size / 256
    cfg.optimizer.lr *= scale
    cfg.optimizer.classifier_lr *= scale
    return cfg


def labelled_folders(path: str) -> list[str]:
    """Names of the subfolders of ``path`` that hold images."""
    if path is None:
        raise ValueError("data.train_path is not set: the folder of the training images")
    root = Path(path).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(f"data.train_path={path}: there is no such folder")
    return [name for name in class_folders(root) if next(image_files(root / name), None)]
