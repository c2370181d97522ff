"""Every key that the runner takes, what it allows, and the message for one that it does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from omegaconf import DictConfig, ListConfig

from simco_methods.config.backbone import odd_backbone
from simco_methods.config.checks import number
from simco_methods.config.keys import RUN, VIEW
from simco_methods.config.method import odd_method
from simco_methods.config.optimizer import odd_optimizer
from simco_methods.config.trainer_keys import REFUSED, TRAINER
from simco_methods.config.walk import mapping_at, shown, value_at, walk
from simco_methods.data.datasets import DATASETS, odd_splits

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
    return walk(cfg, {**TRAINER, **RUN}, refused=REFUSED)


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
        faults += walk(view, VIEW, prefix)
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
