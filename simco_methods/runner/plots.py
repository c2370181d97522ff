"""Curves of one run or of several, on one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D

from simco_methods.analysis.finding import canvas, colours, save_figure
from simco_methods.measures import name_of
from simco_methods.wording import shortened

History = Sequence[Mapping[str, float]]

# Under which name a method logs its own loss: the contrastive ones, NNCLR, BYOL and SimSiam, Barlow
# Twins, VICReg, supervised training.
LOSSES = (
    "train_nce_loss",
    "train_nnclr_loss",
    "train_neg_cos_sim",
    "train_barlow_loss",
    "train_vicreg_loss",
    "train_supervised_loss",
)
_LETTERS = 40  # of a run's name in the legend
_MARKERS = {"-": ".", "--": "x"}  # which tell the lines of a run of one epoch
# What the axis says where all that is drawn is of one kind.
_LABELS = {
    "train_nce_loss": "contrastive loss (nats)",
    "train_supervised_loss": "cross entropy (nats)",
}


def draw_curves(runs: Mapping[str, History], path: Path, title: str = "") -> None:
    """Loss on the left, accuracies on the right, against the epoch; a colour a run.

    Losses of different kinds have no common scale: of several runs only the contrastive ones' are
    drawn, unless there is none.

    Args:
        runs: a run's label to its rows, as in metrics.csv.
        path: PNG file to write.
        title: above the figure.
    """
    draw_groups({title: runs}, path)


def draw_groups(groups: Mapping[str, Mapping[str, History]], path: Path) -> None:
    """Runs that are not to be compared with each other, each group in panels of its own.

    Args:
        groups: a title to runs as of :func:`draw_curves`.
        path: PNG file to write.
    """
    panels = {title: _panels(runs) for title, runs in groups.items()}
    # A legend may be longer than a panel is high.
    heights = [max(4.0, 0.6 + 0.2 * len(runs)) for runs in groups.values()]
    wide = max(1, *(len(found) for found in panels.values()))
    beside = len(groups) > 1 or any(len(runs) > 1 for runs in groups.values())
    longest = max((len(run) for runs in groups.values() for run in runs), default=0)
    legend = 0.7 + 0.075 * min(longest, _LETTERS) if beside else 0
    figure = canvas(5.5 * wide + legend, sum(heights))
    parts = [figure]
    if len(groups) > 1:
        parts = list(figure.subfigures(len(groups), 1, height_ratios=heights))
    for part, (title, runs) in zip(parts, groups.items(), strict=True):
        _draw(part, runs, panels[title], beside)
        part.suptitle(title, fontsize="medium")
    save_figure(figure, path)


def _panels(runs: Mapping[str, History]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Label of each panel, and key, name and line style of what is drawn in it."""
    logged = {name for rows in runs.values() for row in rows for name in row}
    losses = [name for name in LOSSES if name in logged]
    if LOSSES[0] in losses:
        losses = losses[:1]
    label = _LABELS.get(losses[0] if len(losses) == 1 else "", "loss, each method's own")
    found = []
    if losses:
        found.append((label, [(name, "", "-") for name in losses]))
    accuracies = [
        (key, name_of(key), style)
        for key, style in (("val_acc1", "-"), ("val_knn_acc1", "--"))
        if key in logged
    ]
    if accuracies:
        found.append(("accuracy, validation images (%)", accuracies))
    return found


def _draw(
    part: FigureBase, runs: Mapping[str, History], panels: Sequence[tuple], legend: bool
) -> None:
    shades = colours(len(runs))
    lines: dict[str, Line2D] = {}
    # Without a panel an empty one, as wide.
    axes_of = part.subplots(1, max(1, len(panels)), squeeze=False)[0]
    for axes, (label, series) in zip(axes_of, panels, strict=False):
        styles: dict[str, Line2D] = {}
        for (run, rows), shade in zip(runs.items(), shades, strict=True):
            for key, meaning, style in series:
                points = [(row["epoch"] + 1, row[key]) for row in rows if row.get(key) is not None]
                if points:
                    marker = _MARKERS[style] if len(points) < 40 else None
                    axes.plot(*zip(*points, strict=True), style, color=shade, marker=marker, ms=5)
                    lines.setdefault(run, Line2D([], [], color=shade))
                    if meaning:
                        styles[meaning] = Line2D([], [], ls=style, color="black", marker=marker)
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        if styles:
            axes.legend(styles.values(), styles, fontsize="small")
    if legend and lines:
        drawn = [run for run in runs if run in lines]
        part.legend(
            [lines[run] for run in drawn],
            [shortened(run, _LETTERS) for run in drawn],
            loc="outside right upper",
            fontsize="small",
        )
