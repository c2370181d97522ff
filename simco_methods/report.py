"""``simco-report``: a table and a figure of several runs, or one of the paper's tables.

simco-report runs/simco-digits/1a2b3c4d runs/mocov2-digits/5e6f7a8b --out comparison
simco-report table5 --scale mini
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simco_methods import __version__
from simco_methods.files import user_path, write_text
from simco_methods.measures import explained, name_of
from simco_methods.page import markdown_table
from simco_methods.wording import count

# Columns of the table, where runs have them.
_MEASURES = ("val_acc1", "linear_acc1", "knn_acc1", "untrained_knn_acc1")
MOST = 6  # settings that differ and go beside the accuracies as columns
_LABELS = {
    "simco": "SimCo",
    "simmoco": "SimMoCo",
    "mocov2": "MoCo v2",
    "decoupled_moco": "Decoupled MoCo",
    "simsiam_hardness": "SimSiam (Eq. 10)",
    "byol_hardness": "BYOL (Eq. 10)",
    "supervised_hardness": "Supervised",
    # solo-learn's own
    "simclr": "SimCLR",
    "mocov2plus": "MoCo v2+ (solo-learn)",
    "byol": "BYOL",
    "simsiam": "SimSiam",
    "nnclr": "NNCLR",
    "barlow_twins": "Barlow Twins",
    "vicreg": "VICReg",
}
_SYMMETRIC = {"simmoco": "SimMoCo v2+", "mocov2": "MoCo v2+"}


@dataclass
class RunRecord:
    """What a run's folder tells.

    Attributes:
        folder: of the run.
        name: as the user gave it, ``name`` of the config.
        method: for people.
        dataset: that it was trained on; of images of the user's own with their folder.
        summary: of ``summary.json``; empty where the run is not finished.
        rows: of ``metrics.csv``.
        settings: all that makes it another run, as dotted keys.
    """

    folder: Path
    name: str
    method: str
    dataset: str
    summary: dict[str, Any]
    rows: list[dict[str, float]]
    settings: dict[str, Any]

    @property
    def figures(self) -> dict[str, float]:
        """Its accuracies in percent, of the last epoch, by the names of their measures."""
        return {**self.summary.get("last_epoch", {}), **self.summary}

    def shown(self, key: str) -> str:
        """A setting as text; of one that an older run does not know, the default."""
        from simco_methods.config.parse import DEFAULTS

        value = self.settings.get(key, DEFAULTS.get(key))
        return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def read_run(folder: Path, unfinished: bool = False) -> RunRecord:
    """What the folder of a run tells, ``simco-linear``'s accuracy on the same data set included.

    Args:
        folder: of the run.
        unfinished: whether it may be one that has not finished.

    Raises:
        FileNotFoundError: a folder that holds no run, or no finished one.
        ValueError: files that are not a run's.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from simco_methods.config.parse import identity

    summary_file, summary = folder / "summary.json", {}
    if summary_file.is_file():
        try:
            summary = json.loads(summary_file.read_text(encoding="utf-8"))
            method, symmetric = summary["method"], summary["symmetric"]
            dataset = summary["dataset"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{summary_file} is no summary of a run: {error!r}") from error
    elif not unfinished:
        raise FileNotFoundError(f"{folder} holds no finished run (there is no {summary_file.name})")
    rows = read_metrics(folder)
    try:
        cfg = OmegaConf.load(folder / "config.yaml")
        settings = identity(cfg)
    except (OSError, AttributeError, ValueError, YAMLError, OmegaConfBaseException):
        cfg, settings = OmegaConf.create({}), {}
    if not summary:
        method = cfg.get("method", folder.resolve().name)
        symmetric = bool(settings.get("method_kwargs.symmetric", False))
        dataset = settings.get("data.dataset", "an unknown data set")
    linear = folder / "linear" / "summary.json"
    if summary and linear.is_file():
        found = json.loads(linear.read_text(encoding="utf-8"))
        if found.get("dataset", dataset) == dataset:
            summary["linear_acc1"] = found["acc1"]
    if dataset == "custom" and settings.get("data.train_path"):
        dataset = f"custom, {settings['data.train_path']}"
    name = summary.get("name") or cfg.get("name") or folder.resolve().name
    return RunRecord(folder, name, label_of(method, symmetric), dataset, summary, rows, settings)


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The rows of a run's ``metrics.csv``, whether it is finished or not.

    Raises:
        FileNotFoundError: there is none.
        ValueError: a file of something else.
    """
    path = folder / "metrics.csv"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no run (there is no {path.name})")
    with open(path, encoding="utf-8", newline="") as file:
        try:
            rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no table of a run's metrics: {error}") from error
    if any("epoch" not in row for row in rows):
        raise ValueError(f"{path} is no table of a run's metrics: it has no column epoch")
    return rows


def label_of(method: str, symmetric: bool) -> str:
    """What a method is called for people."""
    return {**_LABELS, **(_SYMMETRIC if symmetric else {})}.get(method, method)


def run_labels(runs: Sequence[RunRecord]) -> list[str]:
    """What to call each of several runs: its name, and with runs of the same name what tells it
    from those, their settings if these are one or two, else their folders."""
    labels = [run.name for run in runs]
    for name in {label for label in labels if labels.count(label) > 1}:
        alike = [number for number, run in enumerate(runs) if run.name == name]
        differ = differing([runs[number] for number in alike])
        for number in alike:
            run = runs[number]
            if 0 < len(differ) <= 2:
                own = (f"{key.rsplit('.')[-1]}={run.shown(key)}" for key in differ)
            else:
                own = (run.folder.resolve().name,)
            labels[number] = ", ".join([name, *own])
    for label in {label for label in labels if labels.count(label) > 1}:
        for number, run in enumerate(runs):
            if labels[number] == label:
                labels[number] = f"{run.name}, {run.folder}"
    return labels


def differing(runs: Sequence[RunRecord]) -> list[str]:
    """Settings in which the runs differ, beside their method and the places of their data."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    return [
        key
        for key in keys
        if key != "method"
        and not (key.startswith("data.") and key.endswith("_path"))
        and len({run.shown(key) for run in runs if run.settings}) > 1
    ]


def by_dataset(runs: Sequence[RunRecord]) -> dict[str, list[int]]:
    """Data set -> which of the runs were trained on it."""
    groups: dict[str, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(run.dataset, []).append(number)
    return groups


def table(runs: Sequence[RunRecord], labels: Sequence[str]) -> str:
    """Markdown of runs on one data set: what they reach, and the settings in which they differ.

    Without measures that no run has. Settings that are many are a table of their own.
    """
    differ = differing(runs)
    beside = differ if len(differ) <= MOST else []
    measures = [key for key in _MEASURES if any(key in run.figures for run in runs)]
    head = ["run", "method", *beside, *map(name_of, measures), "seconds", "images/s"]
    lines = [head]
    for run, label in zip(runs, labels, strict=True):
        shown = [f"{run.figures[key]:.2f} %" if key in run.figures else "-" for key in measures]
        costs = [f"{run.summary[key]:.0f}" for key in ("seconds", "images_per_second")]
        lines.append([label, run.method, *(run.shown(key) for key in beside), *shown, *costs])
    text = markdown_table(lines)
    if len(differ) > MOST:
        rows = [[key, *(run.shown(key) for run in runs)] for key in differ]
        text += "\n" + markdown_table([["settings that differ", *labels], *rows])
    return text


def provenance(runs: Sequence[RunRecord], labels: Sequence[str]) -> str:
    """What the runs are, and what they were made with and on: which of them by what."""
    said: dict[str, list[str]] = {}
    for part in (_setup, _made_with):
        for run, label in zip(runs, labels, strict=True):
            said.setdefault(part(run.summary), []).append(label)
    several = len(runs) > 1
    return "".join(
        f"{'all runs' if several and len(who) == len(runs) else '; '.join(who)}: {line}  \n"
        for line, who in said.items()
    )


def _setup(summary: Mapping[str, Any]) -> str:
    epochs = count(summary["epochs"], "epoch")
    return f"{summary['dataset']}, {summary['backbone']}, {epochs}, seed {summary['seed']}"


def _made_with(summary: Mapping[str, Any]) -> str:
    from simco_methods.machine import in_words

    return f"{summary['hardware']}; {in_words(summary['versions'])}"


def report(folders: Sequence[Path], out: Path) -> str:
    """Writes table.md and comparison.png of finished runs into ``out``.

    Runs on different data sets are not compared: each data set has a table and panels of its own.

    Returns:
        What table.md holds.
    """
    from simco_methods.runner.plots import draw_groups

    folders = list({folder.resolve(): folder for folder in folders}.values())
    runs = [read_run(folder) for folder in folders]
    labels, groups = run_labels(runs), by_dataset(runs)
    parts: list[str] = []
    for dataset, numbers in groups.items():
        own, named = [runs[n] for n in numbers], [labels[n] for n in numbers]
        head = f"## {dataset}\n\n" if len(groups) > 1 else ""
        parts.append(f"{head}{table(own, named)}\n{provenance(own, named)}")
    there = [key for key in _MEASURES if any(key in run.figures for run in runs)]
    parts.append("".join(f"{line}  \n" for line in explained(there)))
    text = "\n".join(parts)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "table.md", text)
    curves = {
        dataset: {labels[n]: runs[n].rows for n in numbers} for dataset, numbers in groups.items()
    }
    draw_groups(curves, out / "comparison.png")
    return text


def report_tables(names: Sequence[str], scale: str, results: Path, out: Path | None) -> str:
    """Writes the reports of the paper's tables, of the runs that there are.

    Args:
        names: of tables, or their beginnings, or folders that hold a table's plan; ``all`` for
            those that have been started at this scale.
        scale: at which they were run.
        results: the folder that they were run into.
        out: where to write, by default beside each table's plan.

    Returns:
        The tables in Markdown, and where all of it is.

    Raises:
        ValueError, FileNotFoundError: no table, or one that has not been started.
    """
    from simco_methods.tables.definition import full_name, read_scale
    from simco_methods.tables.present import report_plan

    read_scale(scale)  # is there such a one?
    folders = [
        Path(name) if _is_plan(name) else results / scale / full_name(name)
        for name in names
        if name != "all"
    ]
    if "all" in names:
        folders += sorted(path.parent for path in (results / scale).glob("*/plan.json"))
    return "\n".join(
        report_plan(folder, out / folder.name if out else folder) for folder in folders
    )


def _is_plan(name: str) -> bool:
    return (Path(name) / "plan.json").is_file()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="simco-report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"simco-report {__version__}")
    parser.add_argument("runs", nargs="+", help="folders of finished runs, or names of tables")
    parser.add_argument(
        "--out", type=user_path, help="where to write (default: here; a table's own)"
    )
    parser.add_argument("--scale", default="paper", help="of tables: paper (default), mini, smoke")
    parser.add_argument(
        "--results", type=user_path, default=Path("runs/tables"), help="of tables: the scripts' OUT"
    )
    arguments = parser.parse_intermixed_args()  # options may stand between runs
    try:
        # What is neither a folder nor a table is taken for what it looks like.
        folders = (Path(run) for run in arguments.runs if not _is_plan(run))
        if any(folder.exists() or len(folder.parts) > 1 for folder in folders):
            out = arguments.out or Path(".")
            text = report([Path(run) for run in arguments.runs], out)
            print(f"{text}\nfigure: {out / 'comparison.png'}")
        else:
            given = arguments.scale, arguments.results, arguments.out
            print(report_tables(arguments.runs, *given))
    except (OSError, ValueError) as error:
        sys.exit(f"simco-report: {error}")


if __name__ == "__main__":
    main()
