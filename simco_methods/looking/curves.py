"""Training curves of the encoder's own run and of others, on one figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simco_methods.measures import explained
from simco_methods.page import image, table, text
from simco_methods.report import MOST, RunRecord, by_dataset, differing, read_run, run_labels
from simco_methods.runner.plots import draw_groups


def read_curves(folder: Path) -> RunRecord:
    """A run with its curves, finished or not.

    Raises:
        FileNotFoundError: no folder, or none of a run.
        ValueError: a run without a finished epoch, or files that are not a run's.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} of a run")
    run = read_run(folder, unfinished=True)
    if not run.rows:
        raise ValueError(f"the run {folder} has no finished epoch yet (metrics.csv is empty)")
    return run


def run_of(source: Path) -> Path | None:
    """The run's folder that an encoder was loaded from; None for a file that is of none."""
    source = source.absolute()
    folders = [source] if source.is_dir() else []
    if source.parent.name == "checkpoints" or source.name == "checkpoints":
        folders.append(source.parent.parent if source.is_file() else source.parent)
    return next((folder for folder in folders if (folder / "metrics.csv").is_file()), None)


def make_curves(runs: Sequence[RunRecord], folder: Path) -> list[str]:
    """Writes ``curves.png``, with panels for each data set; returns the parts of a page.

    Raises:
        ValueError: no run.
    """
    if not runs:
        raise ValueError(
            "the encoder was not loaded from a run's folder, and runs=[FOLDER,...] names none"
        )
    labels = [
        label + ("" if run.summary else " (unfinished)")
        for label, run in zip(run_labels(runs), runs, strict=True)
    ]
    groups = {
        dataset: {labels[number]: runs[number].rows for number in numbers}
        for dataset, numbers in by_dataset(runs).items()
    }
    draw_groups(groups, folder / "curves.png")
    rows = [
        {
            "run": label,
            "method": run.method,
            "data set": run.dataset,
            "epochs": len(run.rows),
            **{key: run.shown(key) for key in differing(runs)[:MOST]},
        }
        for label, run in zip(labels, runs, strict=True)
    ]
    there = {key for run in runs for row in run.rows for key in row}
    said = explained(key for key in ("val_acc1", "val_knn_acc1") if key in there)
    return [
        table(rows),
        image(folder / "curves.png"),
        *(f"<p>{text(line)}.</p>" for line in said),
    ]
