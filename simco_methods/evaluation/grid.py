"""The kNN classifiers of a grid: their accuracies from one search, as a table and a figure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simco_methods.analysis.finding import canvas, save_figure, shade
from simco_methods.evaluation.accuracy import Scores
from simco_methods.host.votes import hits, knn_votes
from simco_methods.measures import accuracies, has_top5, name_of
from simco_methods.options import STANDARD_TEMPERATURE
from simco_methods.page import markdown_table
from simco_methods.progress import Progress

# Those of the field (Wu et al., 2018) and of solo-learn: chosen beforehand, on no image.
STANDARD_K = 20


@dataclass(frozen=True)
class Cell:
    """One kNN classifier: distance, neighbours, and the temperature of cosine weights."""

    distance: str
    k: int
    temperature: float | None

    @property
    def weighting(self) -> str:
        """Distance and temperature in words."""
        at = "" if self.temperature is None else f", temperature {self.temperature:g}"
        return f"{self.distance}{at}"


@dataclass
class Grid:
    """What the cells of a grid reach.

    Attributes:
        accuracies: of each cell, top-1 and top-5 in percent; of fewer than six classes the latter
            is None.
        standard: the cell to report, whatever the others reach: they are measured on the same
            images, and the best of them would have been chosen by those.
        scores: of the standard cell.
    """

    accuracies: dict[Cell, tuple[float, float | None]]
    standard: Cell
    scores: Scores

    def rows(self) -> list[dict[str, Any]]:
        """The cells for ``results.csv``."""
        return [
            {**dataclasses.asdict(cell), **accuracies("", *found), "standard": self._mark(cell)}
            for cell, found in self.accuracies.items()
        ]

    def table(self) -> str:
        """The cells in Markdown, a line a k."""
        columns = list(self._lines())
        shown = "top-1 (%)" if self.scores.acc5 is None else "top-1, top-5 (%)"
        lines = [["k", *(f"{name}: {shown}" for name, _ in columns)]]
        for row in zip(*(points for _, points in columns), strict=True):
            cells = (
                ", ".join(f"{accuracy:.2f}" for accuracy in found if accuracy is not None)
                + (" (standard)" if self._mark(cell) else "")
                for cell, found in row
            )
            lines.append([str(row[0][0].k), *cells])
        return markdown_table(lines)

    def draw(self, path: Path, title: str) -> None:
        """Top-1 accuracy against k, a line a distance and temperature; the standard is ringed."""
        figure = canvas(6.0, 4.0)
        axes = figure.subplots()
        lines = list(self._lines())
        for number, (name, points) in enumerate(lines):
            ks, top1 = zip(*((cell.k, found[0]) for cell, found in points), strict=True)
            axes.plot(ks, top1, ".-", color=shade(number, len(lines)), label=name)
        ring = {"mfc": "none", "mec": "crimson", "ms": 11}
        top1 = self.accuracies[self.standard][0]
        axes.plot([self.standard.k], [top1], "o", label=f"standard: {top1:.2f} %", **ring)
        axes.set_xscale("log")
        axes.set_xticks(ks, [str(k) for k in ks])
        axes.minorticks_off()
        axes.set_xlabel("k")
        axes.set_ylabel(f"{name_of('knn_acc1')} (%)")
        axes.set_title(title, fontsize="medium")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        save_figure(figure, path)

    def _mark(self, cell: Cell) -> bool:
        return cell == self.standard

    def _lines(self) -> Iterator[tuple[str, list[tuple[Cell, tuple[float, float | None]]]]]:
        for name in dict.fromkeys(cell.weighting for cell in self.accuracies):
            yield name, [item for item in self.accuracies.items() if item[0].weighting == name]


def cells_of(
    distances: Sequence[str], temperatures: Sequence[float] | None, ks: Sequence[int]
) -> list[Cell]:
    """All cells of a grid; euclidean weights have no temperature."""
    return [
        Cell(distance, k, temperature)
        for distance in distances
        for temperature in (sorted(temperatures) if distance == "cosine" else [None])
        for k in sorted(ks)
    ]


def nearest_to_standard(cells: Sequence[Cell]) -> Cell:
    """The cell of cosine, temperature 0.07 and k = 20, or the one that is nearest to it."""

    def far(cell: Cell) -> tuple[bool, float, float]:
        temperature = cell.temperature or STANDARD_TEMPERATURE
        return (
            cell.distance != "cosine",
            abs(math.log(temperature / STANDARD_TEMPERATURE)),
            abs(math.log(cell.k / STANDARD_K)),
        )

    return min(cells, key=far)


def measure(
    bank: tuple[Tensor, Tensor],
    queries: tuple[Tensor, Tensor],
    cells: Sequence[Cell],
    classes: Sequence[str],
    own: np.ndarray | None = None,
    memory_mib: float | None = None,
) -> Grid:
    """Measures all cells, the neighbours being looked for once a distance.

    Args:
        bank, queries: features (N, D), (M, D) and class numbers (N,), (M,) from 0.
        cells: of :func:`cells_of`.
        classes: names of those that can be voted for.
        own, memory_mib: see :func:`~simco_methods.host.votes.knn_votes`.
    """
    features, targets = queries
    correct = {cell: torch.zeros(2, dtype=torch.long, device=targets.device) for cell in cells}
    standard, predicted = nearest_to_standard(cells), torch.empty_like(targets)
    for distance in dict.fromkeys(cell.distance for cell in cells):
        of_it = [cell for cell in cells if cell.distance == distance]
        with Progress(f"{distance} neighbours", len(targets), "queries") as progress:
            for votes in knn_votes(
                *bank,
                features,
                ks=dict.fromkeys(cell.k for cell in of_it),
                temperatures=dict.fromkeys(cell.temperature for cell in of_it),
                distance=distance,
                num_classes=len(classes),
                memory_mib=memory_mib,
                own=None if own is None else torch.from_numpy(own).to(targets.device),
            ):
                cell = Cell(distance, votes.k, votes.temperature)
                correct[cell] += hits(votes.votes, targets[votes.queries])
                if cell == standard:
                    predicted[votes.queries] = votes.votes.argmax(dim=1)
                progress.update(votes.queries.stop - progress.done)
    found = {}
    for cell, hit in correct.items():
        top1, top5 = (100 * n / len(targets) for n in hit.tolist())
        found[cell] = top1, top5 if has_top5(len(classes)) else None
    pairs = torch.bincount(targets * len(classes) + predicted, minlength=len(classes) ** 2)
    confusion = pairs.view(len(classes), len(classes)).cpu().numpy()
    return Grid(found, standard, Scores(*found[standard], confusion, classes))
