"""Every key that the runner takes, what it allows, and the message for one that it does not."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from lightning.pytorch import Trainer
from omegaconf import DictConfig, ListConfig, OmegaConf

from simco_methods.config.checks import (
    Check,
    anything,
    file_name,
    flag,
    fraction,
    integer,
    mapping,
    number,
    numbers,
    one_of,
    optional,
    share_or_count,
    text,
)
from simco_methods.config.during import DURING
from simco_methods.data import LOADERS
from simco_methods.data.datasets import DATASETS
from simco_methods.data.draws import INTERPOLATIONS
from simco_methods.data.readable import ON_ERROR
from simco_methods.host.knn import DISTANCES

_PROBABILITY = number(0, 1)
_AMOUNT = number(0)

# The keys below method_kwargs and the two kwargs are checked by the method, timm and the optimiser.
_RUN: dict[str, Check] = {
    "name": file_name,
    "method": text,  # checked against the registry by the runner
    "method_kwargs": mapping,
    "seed": integer(0),
    "output_dir": optional(text),
    "max_epochs": integer(1),
    "accumulate_grad_batches": integer(1),
    "num_nodes": integer(1),
    "precision": anything,
    "devices": anything,
    "debug_augmentations": flag,
    "resume_from_checkpoint": optional(text),
    "backbone.name": text,
    "backbone.kwargs": mapping,
    "momentum.base_tau": _PROBABILITY,
    "momentum.final_tau": _PROBABILITY,
    "momentum.classifier": flag,
    "data.dataset": one_of(*DATASETS),
    "data.train_path": optional(text),
    "data.val_path": optional(text),
    "data.format": one_of("image_folder"),
    "data.no_labels": flag,
    "data.fraction": fraction,
    "data.loader": one_of(*LOADERS),
    "data.num_workers": integer(0),
    "data.on_error": one_of(*ON_ERROR),
    "data.num_classes": integer(0),
    "data.num_large_crops": integer(1),
    "data.num_small_crops": integer(0),
    "data.download": flag,
    "data.train_images_per_class": optional(integer(1)),
    "data.val_images_per_class": optional(integer(1)),
    "optimizer.name": one_of("sgd", "lars", "adam", "adamw"),
    "optimizer.batch_size": integer(1),
    "optimizer.lr": number(0),
    "optimizer.classifier_lr": number(0),
    "optimizer.weight_decay": number(0),
    "optimizer.exclude_bias_n_norm_wd": flag,
    "optimizer.kwargs": mapping,
    "scheduler.name": one_of("warmup_cosine", "step", "none"),
    "scheduler.min_lr": number(0),
    "scheduler.warmup_start_lr": number(0),
    "scheduler.warmup_epochs": number(0),
    "scheduler.lr_decay_steps": optional(numbers),
    "scheduler.interval": one_of("step", "epoch"),
    "knn_eval.enabled": flag,
    "knn_eval.k": integer(1),
    "knn_eval.offline": flag,
    "knn_eval.distance_func": one_of(*DISTANCES),
    "performance.disable_channel_last": flag,
    "performance.compile": flag,
    "checkpoint.enabled": flag,
    "checkpoint.dir": optional(text),
    "checkpoint.frequency": integer(1),
    "checkpoint.keep_prev": flag,
    "auto_resume.enabled": flag,
    "auto_resume.max_hours": optional(number(0)),
    **{f"analysis.{key}": check for key, check in DURING.items()},
    "wandb.enabled": flag,
    "wandb.entity": optional(text),
    "wandb.project": text,
    "wandb.offline": flag,
    "check_val_every_n_epoch": optional(integer(1)),
    "log_every_n_steps": integer(1),
    "limit_train_batches": optional(share_or_count),
    "limit_val_batches": optional(share_or_count),
    "num_sanity_val_steps": optional(integer(-1)),
    "gradient_clip_val": optional(number(0)),
    "hydra": anything,
}

_VIEW: dict[str, Check] = {
    "crop_size": integer(1),
    "num_crops": integer(1),
    "mean": numbers,
    "std": numbers,
    "rrc.enabled": flag,
    "rrc.crop_min_scale": number(0, 1, open_low=True),
    "rrc.crop_max_scale": number(0, 1, open_low=True),
    "rrc.interpolation": one_of(*INTERPOLATIONS),
    "color_jitter.prob": _PROBABILITY,
    "color_jitter.brightness": _AMOUNT,
    "color_jitter.contrast": _AMOUNT,
    "color_jitter.saturation": _AMOUNT,
    "color_jitter.hue": number(0, 0.5),
    "grayscale.prob": _PROBABILITY,
    "gaussian_blur.prob": _PROBABILITY,
    "solarization.prob": _PROBABILITY,
    "equalization.prob": _PROBABILITY,
    "horizontal_flip.prob": _PROBABILITY,
}

# Not to be set: what the runner builds for Lightning's Trainer itself, and what would end a run
# before its max_epochs or swap its sampler.
_OWN_TRAINER_KEYS = (
    "self",
    "logger",
    "callbacks",
    "default_root_dir",
    "enable_checkpointing",
    "use_distributed_sampler",
    "fast_dev_run",
    "max_steps",
    "max_time",
    "min_steps",
    "min_epochs",
    "overfit_batches",
)
TRAINER_KEYS = tuple(
    name for name in inspect.signature(Trainer.__init__).parameters if name not in _OWN_TRAINER_KEYS
)

_REQUIRED = (
    "name",
    "method",
    "max_epochs",
    "backbone.name",
    "data.dataset",
    "data.num_workers",
    "optimizer.name",
    "optimizer.batch_size",
    "optimizer.lr",
    "optimizer.classifier_lr",
    "optimizer.weight_decay",
    "scheduler.name",
    "augmentations",
)


def check_config(cfg: DictConfig) -> None:
    """Holds ``cfg`` to the keys and ranges of the runner, before anything is built.

    Raises:
        ValueError: everything that is wrong with it, a line each: an unknown key with the nearest
            known one, a value with what is allowed, a key that is missing.
    """
    faults = list(odd_keys(cfg))
    for key in _REQUIRED:
        if OmegaConf.select(cfg, key) is None:  # None for a missing one, too
            faults.append(f"{key} is not set")
    data = OmegaConf.select(cfg, "data")
    if isinstance(data, DictConfig) and OmegaConf.is_missing(data, "train_path"):
        faults.append("data.train_path is not set: the folder of the training images")
    views = OmegaConf.select(cfg, "augmentations")
    if views is not None:
        if not isinstance(views, ListConfig) or not len(views):
            faults.append("augmentations must be a list of views")
        else:
            for index, view in enumerate(views):
                prefix = f"augmentations[{index}]."
                if not isinstance(view, DictConfig):
                    faults.append(f"augmentations[{index}]={view!r}: must be a mapping")
                    continue
                faults += _walk(view, _VIEW, prefix, {prefix + key: None for key in _VIEW})
                faults += _odd_view(view, prefix)
    faults += _odd_schedule(cfg)
    if faults:
        raise ValueError("the config does not fit:\n" + "\n".join(f"  - {f}" for f in faults))


def odd_keys(cfg: DictConfig) -> Iterator[str]:
    """Unknown keys of a config or a part of it, each with the nearest, and values out of range."""
    known = {**{key: anything for key in TRAINER_KEYS}, **_RUN}
    return _walk(cfg, known, "", known)


def _odd_schedule(cfg: DictConfig) -> Iterator[str]:
    by_step = OmegaConf.select(cfg, "scheduler.name") == "step"
    if by_step and not OmegaConf.select(cfg, "scheduler.lr_decay_steps"):
        yield "scheduler.name=step needs scheduler.lr_decay_steps: [EPOCH, ...]"


def _odd_view(view: DictConfig, prefix: str) -> Iterator[str]:
    for key in ("crop_size", "num_crops"):
        if key not in view:
            yield f"{prefix}{key} is not set"
    low, high = (OmegaConf.select(view, f"rrc.crop_{end}_scale") for end in ("min", "max"))
    if not any(number()(end) for end in (low, high)) and low > high:
        yield f"{prefix}rrc.crop_min_scale={low} is above crop_max_scale={high}"
    for key in ("mean", "std"):
        if isinstance(view.get(key), ListConfig) and len(view[key]) != 3:
            yield f"{prefix}{key} needs a number for each of the 3 channels"


def _walk(
    node: DictConfig, checks: dict[str, Check], prefix: str, known: dict[str, Any], path: str = ""
) -> Iterator[str]:
    for name in node:
        key = f"{path}{name}"
        if key == "augmentations" or OmegaConf.is_missing(node, name):
            continue
        value = node[name]
        is_group = any(other.startswith(f"{key}.") for other in checks)
        if key in checks:
            allowed = checks[key](value)
            if allowed:
                yield f"{prefix}{key}={_shown(value)}: must be {allowed}"
        elif is_group and isinstance(value, DictConfig):
            yield from _walk(value, checks, prefix, known, f"{key}.")
        elif is_group:
            yield f"{prefix}{key}={_shown(value)}: must be a mapping with keys of its own"
        else:
            near = nearest(f"{prefix}{key}", known)
            yield f"{prefix}{key} is no key of the runner" + (
                f"; did you mean {near}?" if near else ""
            )


def nearest(key: str, known: dict[str, Any]) -> str | None:
    """The known key most like ``key``, by its whole path or by its last part alone."""
    groups = {other.rsplit(".", depth)[0] for other in known for depth in (1, 2)}
    names = [*known, *sorted(groups - set(known)), "augmentations"]
    close = get_close_matches(key, names, n=1, cutoff=0.75)
    if close:
        return close[0]
    by_leaf = {other.rsplit(".", 1)[-1]: other for other in names}
    close = get_close_matches(key.rsplit(".", 1)[-1], by_leaf, n=1, cutoff=0.75)
    return by_leaf[close[0]] if close else None


def _shown(value: Any) -> str:
    if isinstance(value, DictConfig | ListConfig):
        value = OmegaConf.to_container(value)
    return repr(value)
