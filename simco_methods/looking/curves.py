"""Training curves of the encoder's own run and of others, on one figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from simco_methods.page import image, text
from simco_methods.report import distinct_labels, label_of, read_metrics, read_run
from simco_methods.runner.plots import draw_curves


@dataclass
class Curves:
    """Those of one run.

    Attributes:
        folder: of the run.
        label: its method, and whether it is not finished.
        rows: of its ``metrics.csv``.
    """

    folder: Path
    label: str
    rows: list[dict[str, float]]


def read_curves(folder: Path) -> Curves:
    """The curves of a run, finished or not.

    Raises:
        FileNotFoundError: no folder, or none of a run.
        ValueError: a run without a finished epoch, or files that are not a run's.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} of a run")
    if (folder / "summary.json").is_file():
        summary, rows = read_run(folder)
        label = summary["label"]
    else:
        rows, label = read_metrics(folder), f"{_method(folder)} (unfinished)"
    if not rows:
        raise ValueError(f"the run {folder} has no finished epoch yet (metrics.csv is empty)")
    return Curves(folder, label, rows)


def run_of(source: Path) -> Path | None:
    """The run's folder that an encoder was loaded from; None for a file that is of none."""
    source = source.absolute()
    folders = [source] if source.is_dir() else []
    if source.parent.name == "checkpoints" or source.name == "checkpoints":
        folders.append(source.parent.parent if source.is_file() else source.parent)
    return next((folder for folder in folders if (folder / "metrics.csv").is_file()), None)


def make_curves(runs: Sequence[Curves], folder: Path) -> list[str]:
    """Writes ``curves.png``; returns the parts of a page.

    Raises:
        ValueError: no run.
    """
    if not runs:
        raise ValueError(
            "the encoder was not loaded from a run's folder, and runs=[FOLDER,...] names none"
        )
    labels = distinct_labels([run.label for run in runs], [run.folder for run in runs])
    draw_curves(
        {label: run.rows for label, run in zip(labels, runs, strict=True)}, folder / "curves.png"
    )
    if len(runs) == 1:
        note = f"{labels[0]}, {len(runs[0].rows)} epochs."
    else:
        note = f"{len(runs)} runs."
    return [f"<p>{text(note)}</p>", image(folder / "curves.png")]


def _method(folder: Path) -> str:
    try:
        cfg = OmegaConf.load(folder / "config.yaml")
        symmetric = OmegaConf.select(cfg, "method_kwargs.symmetric", default=False)
        return label_of(cfg.method, symmetric)
    except (OSError, AttributeError, YAMLError, OmegaConfBaseException):
        return folder.resolve().name
