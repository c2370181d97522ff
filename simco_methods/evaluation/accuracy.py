"""How well the classes of test images were told apart: accuracies, by class, confusions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simco_methods.analysis.finding import canvas, save_figure
from simco_methods.data.decode import printable
from simco_methods.files import write_csv
from simco_methods.measures import accuracies, has_top5
from simco_methods.wording import shortened

_NAMED = 40  # classes whose names fit beside a figure
_LOOK_AT = (
    "look at the loss and warnings of the training, at whether these are its weights, and at the "
    "images as the network sees them (simco-visualize)"
)
_NUMBERED = 20  # classes whose numbers fit into its fields


@dataclass
class Scores:
    """Accuracies in percent.

    Attributes:
        acc1: the class with the highest score is right.
        acc5: the right class is among the five with the highest; None of fewer than six classes.
        confusion: (C, C) int64, how many images of the class of the row were taken for that of the
            column.
        classes: the C names, as they can be printed.
    """

    acc1: float
    acc5: float | None
    confusion: np.ndarray
    classes: Sequence[str]

    def __post_init__(self):
        self.classes = [printable(name) for name in self.classes]

    @property
    def per_class(self) -> np.ndarray:
        """(C,) the accuracy of each class, NaN for one without images."""
        counts = self.confusion.sum(axis=1)
        right = np.where(counts, self.confusion.diagonal(), np.nan)
        return 100 * right / np.maximum(counts, 1)

    @property
    def mean_per_class(self) -> float:
        """The mean of the classes' accuracies, in which small classes count as large ones do."""
        return float(np.nanmean(self.per_class))

    def summary(self) -> dict[str, Any]:
        """For a ``summary.json``."""
        return {
            **accuracies("", self.acc1, self.acc5),
            "mean_per_class": self.mean_per_class,
            "per_class": dict(zip(self.classes, self.per_class.tolist(), strict=True)),
        }

    def write(self, folder: Path, title: str = "") -> None:
        """Writes per_class.csv, confusion.csv (a row a true class) and confusion.png.

        Args:
            folder: that is there.
            title: of the figure.
        """
        named = list(zip(self.classes, self.confusion.tolist(), strict=True))
        write_csv(
            folder / "per_class.csv",
            [
                {"class": name, "images": sum(row), "right": row[i], "acc1": float(acc)}
                for i, ((name, row), acc) in enumerate(zip(named, self.per_class, strict=True))
            ],
        )
        rows = [
            {
                "true class": name,
                **{f"as {other}": n for other, n in zip(self.classes, row, strict=True)},
            }
            for name, row in named
        ]
        write_csv(folder / "confusion.csv", rows)
        self._draw(folder / "confusion.png", title)

    def _draw(self, path: Path, title: str) -> None:
        count = len(self.classes)
        side = min(12.0, 3.5 + 0.28 * count)
        figure = canvas(side + 1, side)
        axes = figure.subplots()
        shares = 100 * self.confusion / np.maximum(self.confusion.sum(axis=1, keepdims=True), 1)
        picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
        figure.colorbar(picture, ax=axes, label="% of the true class", shrink=0.8)
        numbers = "" if count <= _NAMED else ", from 0 as in per_class.csv"
        axes.set_xlabel(f"predicted class{numbers}")
        axes.set_ylabel(f"true class{numbers}")
        axes.set_title(title)
        if count <= _NAMED:
            names = [shortened(name, 24) for name in self.classes]
            axes.set_xticks(range(count), names, rotation=60, ha="right", rotation_mode="anchor")
            axes.set_yticks(range(count), names)
        if count <= _NUMBERED:
            for (row, column), images in np.ndenumerate(self.confusion):
                if images:
                    colour = "white" if shares[row, column] > 55 else "black"
                    axes.text(
                        column, row, images, ha="center", va="center", color=colour, fontsize=7
                    )
        save_figure(figure, path)


def chance_note(
    measure: str, accuracy: float, classes: int, confusion: np.ndarray | None = None
) -> list[str]:
    """A line where an accuracy is that of an encoder whose features tell nothing, else none.

    Args:
        measure: its name.
        accuracy: in percent.
        classes: how many there are.
        confusion: (C, C), see :class:`Scores`; None where it is not known.
    """
    if classes < 2 or accuracy == 100:
        return []
    why = None
    if confusion is not None and np.count_nonzero(confusion.sum(axis=0)) == 1:
        why = "all test images are taken for one class"
    elif math.isclose(accuracy, 100 / classes, rel_tol=1e-6):  # some are float32
        why = f"exactly chance for {classes} classes"
    return [] if why is None else [f"{measure} {accuracy:.2f} %: {why}; {_LOOK_AT}"]


def equal_features_note(features: Tensor) -> list[str]:
    """A line where all rows of (N, F) features are equal, to rounding, else none."""
    if len(features) < 2:
        return []
    spread = (features.amax(dim=0) - features.amin(dim=0)).max()
    if not spread <= 1e-6 * features.abs().max():
        return []
    return [f"the features of all {len(features):,} images are equal; {_LOOK_AT}"]


def scores(logits: Tensor, labels: Tensor, classes: Sequence[str]) -> Scores:
    """Accuracies of one classifier.

    Args:
        logits: (N, C), higher for likelier classes; finite.
        labels: (N,) numbers of the right classes.
        classes: the C names.
    """
    predicted = _ranked(logits)[:, 0]
    confusion = torch.bincount(labels * len(classes) + predicted, minlength=len(classes) ** 2)
    acc1, acc5 = top1_and_top5(logits, labels)
    return Scores(
        acc1=acc1,
        acc5=acc5,
        confusion=confusion.view(len(classes), len(classes)).cpu().numpy(),
        classes=classes,
    )


def hits(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether the right class is the first, and among the first five, (..., N, 2) of booleans.

    Args:
        logits: (..., N, C), of some classifiers.
        labels: (N,).
    """
    right = _ranked(logits) == labels[:, None]
    return torch.stack([right[..., 0], right.any(dim=-1)], dim=-1)


def top1_and_top5(logits: Tensor, labels: Tensor) -> tuple[float, float | None]:
    """Accuracies of one classifier in percent; of fewer than six classes no top-5.

    Args:
        logits: (N, C).
        labels: (N,).
    """
    acc1, acc5 = (100 * hits(logits, labels).double().mean(dim=0)).tolist()
    return acc1, acc5 if has_top5(logits.shape[1]) else None


def _ranked(logits: Tensor) -> Tensor:
    return logits.topk(min(5, logits.shape[-1])).indices
