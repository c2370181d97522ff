"""Curves of one run or of several, on one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

History = Sequence[Mapping[str, float]]

# Under which name a method logs its own loss: the contrastive ones, and solo-learn's NNCLR, BYOL
# and SimSiam, Barlow Twins, VICReg.
LOSSES = (
    "train_nce_loss",
    "train_nnclr_loss",
    "train_neg_cos_sim",
    "train_barlow_loss",
    "train_vicreg_loss",
)


def draw_curves(runs: Mapping[str, History], path: Path, title: str = "") -> None:
    """Each method's loss on the left, accuracies on the right, against the epoch.

    Args:
        runs: a run's label to its rows, as in metrics.csv.
        path: PNG file to write.
        title: above the figure.
    """
    logged = {name for rows in runs.values() for row in rows for name in row}
    contrastive = logged.isdisjoint(LOSSES[1:])
    panels: list[tuple[str, dict[str, tuple[str, str]]]] = [
        (
            "contrastive loss (nats)" if contrastive else "loss, each method's own",
            {name: ("", "-") for name in LOSSES},
        ),
        (
            "validation accuracy (%)",
            {"val_acc1": ("online linear", "-"), "val_knn_acc1": ("online kNN", "--")},
        ),
    ]
    panels = [(label, series) for label, series in panels if not logged.isdisjoint(series)]
    figure = Figure(figsize=(5.5 * max(1, len(panels)), 4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (label, series) in zip(
        figure.subplots(1, max(1, len(panels)), squeeze=False)[0], panels, strict=False
    ):
        for number, (run, rows) in enumerate(runs.items()):
            for name, (meaning, style) in series.items():
                points = [
                    (row["epoch"] + 1, row[name]) for row in rows if row.get(name) is not None
                ]
                if points:
                    axes.plot(
                        *zip(*points, strict=True),
                        style,
                        color=f"C{number % 10}",
                        marker="." if len(points) < 40 else None,
                        label=", ".join(part for part in (run, meaning) if part),
                    )
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(fontsize="small")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
