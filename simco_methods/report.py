"""``simco-report``: a table and a figure of several runs, or one of the paper's tables.

simco-report runs/simco-digits/1a2b3c4d runs/mocov2-digits/5e6f7a8b --out comparison
simco-report table5 --scale mini
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simco_methods import __version__
from simco_methods.files import user_path, write_text
from simco_methods.page import markdown_table

# Column -> how a summary's value is written; a dash where a run has none.
COLUMNS = {
    "method": lambda s: s["label"],
    "online accuracy": lambda s: f"{s['last_epoch']['val_acc1']:.2f} %",
    "offline accuracy": lambda s: f"{s['offline']['acc1']:.2f} %",
    "kNN accuracy": lambda s: f"{s['knn_acc1']:.2f} %",
    "untrained encoder's kNN": lambda s: f"{s['untrained_knn_acc1']:.2f} %",
    "seconds": lambda s: f"{s['seconds']:.0f}",
    "images/s": lambda s: f"{s['images_per_second']:.0f}",
}
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


def read_run(folder: Path) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """The summary of a finished run, with a ``label``, and its rows of metrics.

    If ``simco-linear`` was run on it, what it found is in the summary, as ``offline``.

    Raises:
        FileNotFoundError: a folder that holds no finished run.
    """
    summary_file = folder / "summary.json"
    if not summary_file.is_file():
        raise FileNotFoundError(f"{folder} holds no finished run (there is no {summary_file.name})")
    try:
        summary = json.loads(summary_file.read_text(encoding="utf-8"))
        plus = summary["symmetric"]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{summary_file} is no summary of a run: {error!r}") from error
    offline = folder / "linear" / "summary.json"
    if offline.is_file():
        summary["offline"] = json.loads(offline.read_text(encoding="utf-8"))
    rows = read_metrics(folder)
    summary["label"] = label_of(summary["method"], plus)
    return summary, rows


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


def distinct_labels(labels: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """Labels that tell runs apart: several of a method by their folders, alike ones by numbers."""
    found: list[str] = []
    for label, folder in zip(labels, folders, strict=True):
        if labels.count(label) > 1:
            label += f", {folder.resolve().name}"
        name, number = label, 1
        while name in found:
            number += 1
            name = f"{label} ({number})"
        found.append(name)
    return found


def table(summaries: Sequence[dict[str, Any]]) -> str:
    """A Markdown table, one row a run; offline accuracies only if some run has one."""
    columns = dict(COLUMNS)
    if not any("offline" in summary for summary in summaries):
        del columns["offline accuracy"]
    lines = [list(columns)]
    for summary in summaries:
        cells = []
        for write in columns.values():
            try:
                cells.append(write(summary))
            except KeyError:
                cells.append("-")
        lines.append(cells)
    return markdown_table(lines)


def provenance(summaries: Sequence[dict[str, Any]]) -> str:
    """What the runs were made with and on, once if it is the same for all."""
    from simco_methods.machine import in_words

    lines = dict.fromkeys(
        f"{s['dataset']}, {s['backbone']}, {s['epochs']} epochs, seed {s['seed']}; "
        + f"{s['hardware']}; "
        + in_words(s["versions"])
        for s in summaries
    )
    return "\n".join(lines) + "\n"


def report(folders: Sequence[Path], out: Path) -> str:
    """Writes table.md and comparison.png of finished runs into ``out``.

    Returns:
        What table.md holds.
    """
    from simco_methods.runner.plots import draw_curves

    runs = [read_run(folder) for folder in folders]
    summaries = [summary for summary, _ in runs]
    labels = distinct_labels([summary["label"] for summary in summaries], folders)
    for summary, label in zip(summaries, labels, strict=True):
        summary["label"] = label
    curves = {label: rows for label, (_, rows) in zip(labels, runs, strict=True)}
    text = f"{table(summaries)}\n{provenance(summaries)}"
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "table.md", text)
    first = summaries[0]
    draw_curves(curves, out / "comparison.png", f"{first['dataset']}, {first['backbone']}")
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
