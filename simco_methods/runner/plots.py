"""Curves of one run or of several, on one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.lines import Line2D

from simco_methods.analysis.finding import canvas, save_figure

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
    logged = {name for rows in runs.values() for row in rows for name in row}
    drawn = [name for name in LOSSES if name in logged]
    if LOSSES[0] in drawn:
        drawn = drawn[:1]
    panels = [
        (
            _LABELS.get(drawn[0] if len(drawn) == 1 else "", "loss, each method's own"),
            {name: ("", "-") for name in drawn},
        ),
        (
            "validation accuracy (%)",
            {"val_acc1": ("online linear", "-"), "val_knn_acc1": ("online kNN", "--")},
        ),
    ]
    panels = [panel for panel in panels if not logged.isdisjoint(panel[1])]
    colours = colormaps["tab10" if len(runs) <= 10 else "tab20"]
    figure = canvas(5.5 * max(1, len(panels)), 4)
    lines: dict[str, Line2D] = {}
    for axes, (label, series) in zip(
        figure.subplots(1, max(1, len(panels)), squeeze=False)[0], panels, strict=False
    ):
        styles: dict[str, Line2D] = {}
        for number, (run, rows) in enumerate(runs.items()):
            for name, (meaning, style) in series.items():
                points = [
                    (row["epoch"] + 1, row[name]) for row in rows if row.get(name) is not None
                ]
                if points:
                    marker = "." if len(points) < 40 else None
                    colour = colours(number % colours.N)
                    (line,) = axes.plot(
                        *zip(*points, strict=True), style, color=colour, marker=marker
                    )
                    if style == "-":
                        lines.setdefault(run, line)
                    if meaning:
                        styles[meaning] = Line2D([], [], linestyle=style, color="black")
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if styles:
            axes.legend(styles.values(), styles, fontsize="small")
    if len(runs) > 1:
        order = [run for run in runs if run in lines]
        figure.legend(
            [lines[run] for run in order], order, loc="outside right upper", fontsize="small"
        )
    figure.suptitle(title)
    save_figure(figure, path)
