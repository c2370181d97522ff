"""What an analysis finds, and the files it becomes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from colorsys import hsv_to_rgb
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter
from torch import Tensor

from simco_methods.files import whole, write_csv, write_json

Rows = Sequence[Mapping[str, Any]]


@dataclass
class Finding:
    """The result of one analysis.

    Attributes:
        name: the analysis; its files are ``<name>.csv``, ``.json``, ``.png``.
        title: what the report calls it.
        text: what was measured, in a sentence or two, for a reader of the report.
        rows: the table, a mapping a row.
        figures: "" or a suffix to a figure.
        summary: what is to be known beside the rows.
    """

    name: str
    title: str
    text: str
    rows: Rows
    figures: dict[str, Figure]
    summary: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> list[Path]:
        """Writes CSV, JSON and PNGs; returns the figures' paths."""
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(folder / f"{self.name}.csv", self.rows)
        content = {"summary": self.summary, "rows": [dict(row) for row in self.rows]}
        write_json(folder / f"{self.name}.json", {"title": self.title, **content})
        paths = []
        for suffix, figure in self.figures.items():
            paths.append(folder / f"{self.name}{'-' if suffix else ''}{suffix}.png")
            save_figure(figure, paths[-1])
        return paths


# W as written to its log-odds; beyond 0.99 by what it lacks to 1.
_HARDNESS_TICKS = {
    **{f"{w:g}": math.log(w / (1 - w)) for w in (0.001, 0.01, 0.1, 0.5, 0.9, 0.99)},
    **{f"1-1e-{power}": power * math.log(10) for power in (4, 6, 8, 10, 12)},
}


def log_odds(hardness: Tensor) -> Tensor:
    """log(W / (1 - W)), on which both ends of W can be seen; at most 30 from zero."""
    hardness = hardness.double().clamp(1e-13, 1 - 1e-13)
    return hardness.log() - torch.log1p(-hardness)


def hardness_axis(panel: Axes) -> None:
    """Labels an x axis of :func:`log_odds` by W."""
    low, high = panel.get_xlim()
    ticks = {label: odds for label, odds in _HARDNESS_TICKS.items() if low <= odds <= high}
    panel.set_xticks(list(ticks.values()), ticks, rotation=30, ha="right", rotation_mode="anchor")


def shade(number: int, count: int) -> tuple[float, ...]:
    """The colour of the ``number``-th of ``count`` temperatures, dark for low ones."""
    return colormaps["viridis"](0.9 * number / max(count - 1, 1))


def colours(count: int) -> list[str]:
    """As many colours that can be told apart: of up to ten those of matplotlib; of more, those that
    follow each other differ most, and three shades go round the circle of hues."""
    if count <= 10:
        return [to_hex(colormaps["tab10"](number)) for number in range(count)]
    shades = ((0.9, 0.9), (0.85, 0.6), (0.45, 0.85))
    return [
        to_hex(hsv_to_rgb(number * 0.618034 % 1, *shades[number % 3])) for number in range(count)
    ]


def near(rows: Rows, key: str, value: float) -> list[Mapping[str, Any]]:
    """The rows whose ``key`` is nearest to ``value``."""
    nearest = min({row[key] for row in rows}, key=lambda other: abs(other - value))
    return [row for row in rows if row[key] == nearest]


def canvas(width: float, height: float) -> Figure:
    """An empty figure, in inches, that is drawn without a display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)  # inches, so that nothing is at an edge
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG, whole or not at all."""
    powers = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        if isinstance(axis.get_major_formatter(), LogFormatter)
        for label in axis.get_ticklabels(which="both")
    }
    for text in {*figure.findobj(Text)} - powers:
        text.set_parse_math(False)  # names of runs, classes and files may hold $
    with whole(path) as part, warnings.catch_warnings():
        # Of characters that matplotlib's font lacks; they show as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(part, dpi=120, format="png")


def panels(*labels: tuple[str, str], height: float = 4.0) -> tuple[Figure, list[Axes]]:
    """A figure with one panel for each (x label, y label)."""
    figure = canvas(5.2 * len(labels), height)
    axes = list(figure.subplots(1, len(labels), squeeze=False)[0])
    for panel, (x, y) in zip(axes, labels, strict=True):
        panel.set_xlabel(x)
        panel.set_ylabel(y)
        panel.grid(alpha=0.3)
    return figure, axes
