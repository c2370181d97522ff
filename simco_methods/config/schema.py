"""Every key that the runner takes, what it allows, and the message for one that it does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from omegaconf import DictConfig, ListConfig

from simco_methods.config.backbone import odd_backbone
from simco_methods.config.checks import (
    Check,
    anything,
    exactly,
    file_name,
    flag,
    fraction,
    integer,
    mapping,
    number,
    numbers,
    one_of,
    optional,
    text,
    whole_numbers,
)
from simco_methods.config.during import DURING
from simco_methods.config.method import odd_method
from simco_methods.config.optimizer import odd_optimizer
from simco_methods.config.trainer_keys import REFUSED, TRAINER
from simco_methods.config.walk import mapping_at, shown, value_at, walk
from simco_methods.data import LOADERS
from simco_methods.data.datasets import DATASETS, odd_splits
from simco_methods.data.draws import INTERPOLATIONS
from simco_methods.data.readable import ON_ERROR
from simco_methods.host.votes import DISTANCES

_PROBABILITY = number(0, 1)
_AMOUNT = number(0, 100)

# Keys of Lightning's Trainer stand in trainer_keys.py; those below method_kwargs and the two kwargs
# are the method's, the backbone's and the optimiser's.
_RUN: dict[str, Check] = {
    "name": file_name,
    "method": text,
    "method_kwargs": mapping,
    "seed": integer(0, 2**32 - 1),  # those that NumPy takes
    "output_dir": optional(text),
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
    "data.labels": optional(text),
    "data.val_labels": optional(text),
    "data.test_share": optional(number(0, 1, open_low=True)),
    "data.format": one_of("image_folder"),
    "data.no_labels": flag,
    "data.fraction": fraction,
    "data.loader": one_of(*LOADERS),
    "data.num_workers": integer(0),
    "data.on_error": one_of(*ON_ERROR),
    "data.num_classes": integer(0),
    "data.num_large_crops": exactly(2),
    "data.num_small_crops": exactly(0),
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
    "scheduler.lr_decay_steps": optional(whole_numbers),
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
    "on_nonfinite": one_of("stop", "skip"),
    "augmentations": anything,  # a list of _VIEW
    "hydra": anything,
}

_VIEW: dict[str, Check] = {
    "crop_size": integer(1, 2**14),
    "num_crops": integer(1),
    "mean": numbers(3),
    "std": numbers(3, open_low=0),
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

TRAINER_KEYS = tuple(TRAINER)

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


def check_config(cfg: DictConfig, without_value: Mapping[str, str] | None = None) -> None:
    """Holds ``cfg`` to what the runner, the method, the backbone and the optimiser take.

    Args:
        cfg: a resolved config, not changed.
        without_value: keys that have none, and why.

    Raises:
        ValueError: everything that is wrong with it, a line each: an unknown key with the nearest
            known one, a value with what is allowed, a key that is missing.
    """
    reasons = {"data.train_path": "is not set: the folder of the training images"}
    faults = [f"{key} {reasons.get(key, why)}" for key, why in (without_value or {}).items()]
    faults += odd_keys(cfg)
    faults += [
        f"{key} is not set" for key in _REQUIRED if _is_absent(cfg, key, without_value or {})
    ]
    faults += _odd_views(cfg)
    faults += _odd_schedule(cfg)
    faults += _odd_data(cfg)
    faults += odd_method(cfg)
    faults += odd_backbone(cfg)
    faults += odd_optimizer(cfg)
    if faults:
        faults = dict.fromkeys(" ".join(fault.split()) for fault in faults)
        raise ValueError("the config does not fit:\n" + "\n".join(f"  - {f}" for f in faults))


def odd_keys(cfg: DictConfig) -> Iterator[str]:
    """Unknown keys of a config or a part of it, each with the nearest, and values out of range."""
    return walk(cfg, {**TRAINER, **_RUN}, refused=REFUSED)


def _is_absent(cfg: DictConfig, key: str, without_value: Collection[str]) -> bool:
    """Whether nothing is there: what is there, if only null, has been checked."""
    node, path = cfg, ""
    for part in key.split("."):
        path = f"{path}.{part}".removeprefix(".")
        if not isinstance(node, DictConfig) or path in without_value:
            return False
        if part not in node:
            return True
        node = node[part]
    return False


def _odd_schedule(cfg: DictConfig) -> Iterator[str]:
    by_step = value_at(cfg, "scheduler.name") == "step"
    if by_step and not value_at(cfg, "scheduler.lr_decay_steps"):
        yield "scheduler.name=step needs scheduler.lr_decay_steps: [EPOCH, ...]"


def _odd_data(cfg: DictConfig) -> Iterator[str]:
    dataset, given = (value_at(cfg, f"data.{key}") for key in ("dataset", "num_classes"))
    info = DATASETS.get(dataset) if isinstance(dataset, str) else None
    if info and info.num_classes and type(given) is int and given != info.num_classes:
        yield f"data.num_classes={given}: {dataset} has {info.num_classes}; leave it out"
    yield from odd_splits(mapping_at(cfg, "data"))


def _odd_views(cfg: DictConfig) -> Iterator[str]:
    if "augmentations" not in cfg:
        return
    views = cfg.augmentations
    if not isinstance(views, ListConfig) or not len(views):
        yield f"augmentations={shown(views)}: must be a list of views"
        return
    faults = []
    for index, view in enumerate(views):
        prefix = f"augmentations[{index}]."
        if not isinstance(view, DictConfig):
            faults.append(f"augmentations[{index}]={shown(view)}: must be a mapping")
            continue
        faults += walk(view, _VIEW, prefix)
        faults += _odd_view(view, prefix)
    yield from faults
    if not faults:
        sizes = {view.crop_size for view in views}
        count = sum(view.num_crops for view in views)
        if len(sizes) > 1 or count != 2:
            yield (
                f"augmentations give {count} views of {sorted(sizes)} pixels; {cfg.get('method')} "
                "needs two views of one size (multi-crop is not supported): num_crops of 2 in all, "
                "one crop_size"
            )


def _odd_view(view: DictConfig, prefix: str) -> Iterator[str]:
    for key in ("crop_size", "num_crops"):
        if key not in view:
            yield f"{prefix}{key} is not set"
    low, high = (value_at(view, f"rrc.crop_{end}_scale") for end in ("min", "max"))
    if not any(number()(end) for end in (low, high)) and low > high:
        yield f"{prefix}rrc.crop_min_scale={low} is above crop_max_scale={high}"
