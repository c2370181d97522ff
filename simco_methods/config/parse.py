"""From a config as written to the one that is trained: defaults, classes, crops, scaled rates."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simco_methods.config.method import needs_labels, needs_other_rows, with_method_defaults
from simco_methods.config.optimizer import MOMENTUM, WITH_MOMENTUM
from simco_methods.config.resolve import resolve
from simco_methods.config.schema import check_config
from simco_methods.config.spelling import runs_on_cpu, spell_devices, spell_precision
from simco_methods.data import DATASETS
from simco_methods.data.datasets import class_names
from simco_methods.methods.settings import refuse

DEFAULTS = {
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
    "on_nonfinite": "stop",
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
    "on_nonfinite",
    "log_every_n_steps",
    "enable_progress_bar",
    "enable_model_summary",
    "num_sanity_val_steps",
)


# Keys that came later: left at null they are no part of it, so that older runs are known by theirs.
_LATER = ("data.labels", "data.val_labels", "data.test_share")


def complete(cfg: DictConfig) -> DictConfig:
    """Checks a config and fills in the runner's defaults; the config that a run is known by.

    Raises:
        ValueError: see :func:`~simco_methods.config.schema.check_config`.
    """
    if "pretrained_feature_extractor" in cfg.keys():  # missing values are no members
        raise ValueError(
            "this is a config of solo-learn's main_linear.py, not one to pretrain with"
        )
    cfg, without_value = resolve(cfg)
    check_config(cfg, without_value)
    cfg.pop("hydra", None)
    for key, value in DEFAULTS.items():
        if OmegaConf.select(cfg, key) is None:
            OmegaConf.update(cfg, key, value, force_add=True)
    if cfg.optimizer.name in WITH_MOMENTUM:
        momentum = OmegaConf.select(cfg, "optimizer.kwargs.momentum", default=MOMENTUM)
        OmegaConf.update(cfg, "optimizer.kwargs.momentum", momentum, force_add=True)
    on_cpu = runs_on_cpu(cfg)
    cfg.devices = spell_devices(cfg.devices, on_cpu)
    cfg.precision = spell_precision(cfg.precision, on_cpu)
    return with_method_defaults(cfg)


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
        and not (key in _LATER and value is None)
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
        ValueError: a method of solo-learn's own without labels; a batch of one image for a method
            that contrasts the rows of a batch.
    """
    cfg = cfg.copy()
    info = DATASETS[cfg.data.dataset]
    if info.num_classes is None:
        cfg.data.num_classes = len(class_names(cfg.data))
        if not cfg.data.no_labels and cfg.data.num_classes == 0:
            share = cfg.data.get("test_share")
            if share is not None:
                raise ValueError(
                    f"data.test_share={share}: it is of each class, and {cfg.data.train_path} has "
                    "no class folders; data.labels=FILE (a CSV or TSV of file,label) names classes"
                )
            print(
                f"{cfg.data.train_path} has no class folders: training without labels, so without "
                "online accuracy (data.no_labels=true says so too)",
                flush=True,
            )
            cfg.data.no_labels = True
        cfg.data.num_classes = max(1, cfg.data.num_classes)
    else:
        cfg.data.num_classes = info.num_classes
    refuse([*needs_labels(cfg.method, cfg.data.no_labels), *needs_other_rows(cfg, world_size)])
    views = sum(view.num_crops for view in cfg.augmentations)
    cfg.data.num_large_crops, cfg.data.num_small_crops = views, 0
    scale = cfg.optimizer.batch_size * world_size / 256
    cfg.optimizer.lr *= scale
    cfg.optimizer.classifier_lr *= scale
    return cfg
