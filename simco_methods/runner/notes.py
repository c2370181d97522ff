"""What a user should know of a run before it trains: it works, and may not be what is meant."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from omegaconf import DictConfig

from simco_methods.data.datasets import FOLDERS, has_validation
from simco_methods.data.decode import UnreadableImage
from simco_methods.data.images import ImageSet

# Of the images of an epoch: fewer are left out in the usual run, others in each epoch.
_LEFT_OUT = 0.03
CROPS = (32, 64, 96)  # small ones that there is a config for
_ENLARGED = 2  # times that images are enlarged without a note
_LOOKED_AT = 100  # images whose sizes are read
# Without negatives there are none to be added.
_NO_NEGATIVES = ("simsiam_hardness", "byol_hardness", "supervised_hardness")


def notes(
    cfg: DictConfig, *, train_images: int, world_size: int, pixels: float | None = None
) -> list[str]:
    """What is said once, at the start of a run.

    Args:
        cfg: the parsed config.
        train_images: how many there are to train on.
        world_size: processes on all nodes.
        pixels: of the images' shorter sides, see :func:`shorter_side`; None where not known.

    Returns:
        A line for each thing, naming the keys that it depends on.
    """
    batch = cfg.optimizer.batch_size * world_size
    batches = batches_per_epoch(cfg, train_images, batch)
    return [
        *_size(cfg, pixels),
        *_batch(cfg, train_images, batch),
        *_dictionary(cfg, train_images, batches * batch),
        *_temperatures(cfg),
        *_schedule(cfg, batches),
        *_validation(cfg, train_images),
    ]


def check_limits(cfg: DictConfig, *, train_images: int, val_images: int, world_size: int) -> None:
    """Holds the shares of batches to the number that there is.

    Args:
        cfg: the parsed config.
        train_images, val_images: how many there are, 0 of which none are asked for.
        world_size: processes on all nodes.

    Raises:
        ValueError: a share of less than one batch, with the smallest that is one.
    """
    size = cfg.optimizer.batch_size
    batches = {
        "train": train_images // (size * world_size),
        "val": math.ceil(math.ceil(val_images / world_size) / size),
    }
    for split, count in batches.items():
        share = cfg.get(f"limit_{split}_batches")
        if isinstance(share, float) and 0 < share * count < 1:
            raise ValueError(
                f"limit_{split}_batches={share} of {count} batches is less than one: take "
                f"{math.ceil(1e4 / count) / 1e4:g} or more, or a whole number"
            )


def shorter_side(images: ImageSet) -> float | None:
    """Median of the shorter sides of some images, in pixels; None if none can be read."""
    found = []
    for index in np.linspace(0, len(images) - 1, num=min(_LOOKED_AT, len(images))).astype(int):
        with suppress(UnreadableImage):  # whoever reads it will say so
            found.append(min(images.size(index)))
    return float(np.median(found)) if found else None


def _size(cfg: DictConfig, pixels: float | None) -> Iterator[str]:
    crop = max(view.crop_size for view in cfg.augmentations)
    if pixels is None or crop <= _ENLARGED * pixels:
        return
    small = min((size for size in CROPS if size >= pixels), default=max(CROPS))
    backbone = cfg.backbone.name
    if f"{backbone}_small" in ("resnet18_small", "resnet50_small"):
        backbone += "_small"
    also = f" backbone.name={backbone}" if backbone != cfg.backbone.name else ""
    yield (
        f"the images are smaller than the crops: {pixels:g} pixels (median of the shorter sides), "
        f"enlarged to {crop}, which costs time and adds nothing; set augmentations=crop{small}"
        f"{also} for images of this size"
    )


def batches_per_epoch(cfg: DictConfig, train_images: int, batch: int) -> int:
    """Batches of an epoch, of ``batch`` images on all processes."""
    there, limit = train_images // batch, cfg.get("limit_train_batches")
    if limit is None:
        return there
    return int(there * limit) if isinstance(limit, float) else min(limit, there)


def _batch(cfg: DictConfig, train_images: int, batch: int) -> Iterator[str]:
    size, accumulated = cfg.optimizer.batch_size, cfg.accumulate_grad_batches
    processes = batch // size
    left_out = train_images % batch
    if left_out >= _LEFT_OUT * train_images and cfg.get("limit_train_batches") is None:
        yield (
            f"{left_out} of {train_images} images fill no batch of {size} x {processes} "
            "process(es) and are left out of each epoch, others each time"
        )
    if accumulated > 1 and cfg.method not in _NO_NEGATIVES:
        yield (
            f"accumulating gradients adds no negatives: an anchor has those of one batch, or of "
            f"the queue, with accumulate_grad_batches={accumulated} as with 1"
        )
    if size == 1:
        yield (
            "optimizer.batch_size=1 leaves each process a single anchor: spread, rank and hardness "
            "of the embedding are not defined and not logged as numbers"
        )


def _queue_read(cfg: DictConfig) -> int:
    """Up to which age, in keys, anchors see the queue; 0 without one."""
    kwargs = cfg.method_kwargs
    if "vector" not in kwargs:
        return kwargs.get("queue_size", 0)
    ages = [0]
    for name in ("vector", "scalar"):
        component = kwargs[name]
        if component.negatives == "queue":
            recent = component.order == "recent" and component.size
            ages.append(component.size if recent else kwargs.queue_size)
    return max(ages)


def _dictionary(cfg: DictConfig, train_images: int, keys: int) -> Iterator[str]:
    queue = _queue_read(cfg)
    if queue <= keys or not keys:
        return
    epochs = math.ceil(queue / keys)
    filled = f"it is full after {epochs} epochs"
    if epochs > cfg.max_epochs:
        filled = (
            f"it is never full, and the rest of it stays random, in max_epochs={cfg.max_epochs}"
        )
    if queue > train_images:
        yield (
            f"the queue of {queue} keys is larger than the data set of {train_images} images: "
            f"anchors have older keys of their own image among their negatives; {filled}"
        )
    else:
        yield f"the queue of {queue} keys takes more than the {keys} that an epoch gives: {filled}"


def _temperatures(cfg: DictConfig) -> Iterator[str]:
    kwargs = cfg.method_kwargs
    if "vector" in kwargs:
        names = "method_kwargs.vector.tau", "method_kwargs.scalar.tau"
        alpha, beta = kwargs.vector.tau, kwargs.scalar.tau
    elif "tau_alpha" in kwargs and "tau_beta" in kwargs:
        names = "method_kwargs.tau_alpha", "method_kwargs.tau_beta"
        alpha, beta = kwargs.tau_alpha, kwargs.tau_beta
    else:
        return
    if beta < alpha:
        yield (
            f"{names[1]}={beta:g} is below {names[0]}={alpha:g}: as a rule the pull is shared less "
            "evenly among the anchors than at equal temperatures, more of it goes to the hardest; "
            "the paper takes it above, which shares it more evenly"
        )


def _schedule(cfg: DictConfig, batches: int) -> Iterator[str]:
    scheduler, epochs = cfg.scheduler, cfg.max_epochs
    if cfg.optimizer.lr == 0:
        yield "optimizer.lr=0: the backbone is not trained"
    if scheduler.name == "warmup_cosine" and scheduler.warmup_epochs > epochs:
        reached = epochs / scheduler.warmup_epochs
        yield (
            f"scheduler.warmup_epochs={scheduler.warmup_epochs:g} is longer than "
            f"max_epochs={epochs}: the learning rate rises to the end and reaches {reached:.0%} of "
            "the way to optimizer.lr"
        )
    if cfg.accumulate_grad_batches > max(batches, 1):
        yield (
            f"accumulate_grad_batches={cfg.accumulate_grad_batches} is more than the {batches} "
            "batches of an epoch: there is one optimiser step an epoch, of those"
        )


def _validation(cfg: DictConfig, train_images: int) -> Iterator[str]:
    if cfg.data.dataset in FOLDERS and not (cfg.data.no_labels or has_validation(cfg.data)):
        yield (
            "without data.val_path there is no accuracy; data.test_share=0.2 holds out a fifth of "
            "each class to validate on"
        )
    every = cfg.get("check_val_every_n_epoch") or 1
    if every > cfg.max_epochs:
        yield (
            f"check_val_every_n_epoch={every} is beyond max_epochs={cfg.max_epochs}: only the last "
            "epoch is validated"
        )
    if cfg.knn_eval.enabled and cfg.knn_eval.k > train_images:
        yield (
            f"knn_eval.k={cfg.knn_eval.k} is more than the {train_images} training images: all of "
            "them vote"
        )
