"""The measures of runs and evaluations: what people are shown of each, under one name everywhere.

Keys are those of logs, ``metrics.csv`` and ``summary.json``; ``..._acc5`` is the top-5 accuracy of
the measure of ``..._acc1``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Key -> name, and what it is measured on.
MEASURES = {
    "val_acc1": (
        "online accuracy",
        "the linear classifier that is trained along on the encoder's features, validation images",
    ),
    "val_knn_acc1": (
        "online kNN",
        "validation images in a bank of the epoch's augmented training views, gathered meanwhile",
    ),
    "knn_acc1": (
        "kNN accuracy",
        "the finished encoder, validation images in a bank of unaugmented training images",
    ),
    "untrained_knn_acc1": (
        "untrained kNN",
        "the same as kNN accuracy, of the network with the weights that training starts from",
    ),
    "linear_acc1": (
        "linear accuracy",
        "a linear classifier that is trained on the finished encoder's features, validation images",
    ),
    "finetune_acc1": (
        "finetuned accuracy",
        "encoder and linear classifier trained on together, validation images",
    ),
    "train_acc1": (
        "online training accuracy",
        "the linear classifier that is trained along, augmented training views",
    ),
    "momentum_val_acc1": ("online accuracy, momentum encoder", "as the online accuracy"),
    "train_momentum_acc1": (
        "online training accuracy, momentum encoder",
        "as the online training accuracy",
    ),
}
_FEWEST = 6  # classes that have a top-5 accuracy below 100 %


def has_top5(classes: int) -> bool:
    """Whether a top-5 accuracy says anything: of five classes and fewer it is always 100 %."""
    return classes >= _FEWEST


def no_top5(classes: int) -> list[str]:
    """A note of why there is no top-5 accuracy, where there is none."""
    if has_top5(classes):
        return []
    return [f"top-5 accuracies are left out: with {classes} classes they are always 100 %"]


def accuracies(prefix: str, acc1: float, acc5: float | None) -> dict[str, float]:
    """By their keys: ``<prefix>acc1`` and, where there is one, ``<prefix>acc5``."""
    found = {f"{prefix}acc1": acc1, f"{prefix}acc5": acc5}
    return {key: accuracy for key, accuracy in found.items() if accuracy is not None}


def name_of(key: str) -> str:
    """What a measure is called; a key that is none stays as it is."""
    if key in MEASURES:
        return MEASURES[key][0]
    first = key.removesuffix("5") + "1"
    if key.endswith("_acc5") and first in MEASURES:
        return f"top-5 {MEASURES[first][0]}"
    return key


def in_percent(figures: Mapping[str, Any], keys: Iterable[str] | None = None) -> list[str]:
    """Name and value of those of the keys that there are, as ``online accuracy 91.23 %``; by
    default of all figures."""
    keys = figures if keys is None else keys
    return [f"{name_of(key)} {figures[key]:.2f} %" for key in keys if figures.get(key) is not None]


def explained(keys: Iterable[str]) -> list[str]:
    """A line for each of the keys: its name, and what it is measured on."""
    return [f"{MEASURES[key][0]}: {MEASURES[key][1]}" for key in keys]
