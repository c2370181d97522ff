"""A table for people: Markdown, CSV, a plot, and one page with all of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simco_methods.analysis.finding import panels, save_figure
from simco_methods.files import rounded, write_csv, write_text
from simco_methods.machine import in_words
from simco_methods.measures import MEASURES, name_of
from simco_methods.page import facts_table, image, markdown_table, text, write_page
from simco_methods.page import table as html_table
from simco_methods.tables.cells import Cell
from simco_methods.tables.collect import Figure, collect, judge
from simco_methods.tables.definition import Table
from simco_methods.tables.plan import read_plan

_METRICS = {
    **{key: f"{name_of(key)}, last epoch (%)" for key in ("val_acc1", "knn_acc1")},
    "anchor_entropy": "normalised entropy of r+",
}
_EVERY_RUN = ("dataset", "backbone", "epochs", "processes", "hardware", "host")
_COSTS = ("seconds", "images_per_second", "peak_memory_mib")


def present(table: Table, cells: Sequence[Cell], overrides: Sequence[str], folder: Path) -> str:
    """Writes table.md, table.csv, runs.csv, table.png and report.html into ``folder``.

    Returns:
        What table.md holds.
    """
    figures = collect(table, cells)
    verdicts = judge(table, figures)
    folder.mkdir(parents=True, exist_ok=True)
    grid = _grid(table, figures)
    places = [_line(figure, table) for figure in figures]
    runs = [_run_line(cell, table) for cell in cells]
    write_csv(folder / "table.csv", places)
    write_csv(folder / "runs.csv", runs)
    draw(table, figures, folder / "table.png")
    facts = _facts(table, figures, cells, overrides)
    markdown = "\n".join(
        [
            f"# {table.title}\n",
            markdown_table(grid),
            *(f"* {verdict.ordering.says}: {verdict.text}" for verdict in verdicts),
            *([""] if verdicts else []),
            *([f"{table.note.strip()}\n"] if table.note else []),
            markdown_table(_costs(table, figures)),
            *(f"{name}: {value}  " for name, value in facts.items()),
        ]
    )
    write_text(folder / "table.md", f"{markdown}\n")
    head, *lines = grid
    statements = (
        f"<li>{text(verdict.ordering.says)}: <b>{text(verdict.text)}</b></li>"
        for verdict in verdicts
    )
    parts = [
        html_table([dict(zip(head, line, strict=True)) for line in lines]),
        "<ul>",
        *statements,
        "</ul>",
        f"<p>{text(table.note)}</p>",
        image(folder / "table.png"),
        facts_table(facts),
        "<details><summary>every place</summary>",
        html_table(places),
        "</details><details><summary>every run</summary>",
        html_table(runs),
        "</details>",
    ]
    write_page(folder / "report.html", table.title, parts)
    return f"{markdown}\n"


def report_plan(folder: Path, out: Path) -> str:
    """Reports the table whose plan is in ``folder`` into ``out``.

    Returns:
        What table.md holds, and where the rest is.
    """
    text = present(*read_plan(folder), out)
    return f"{text}\nall of it: {out / 'report.html'}\n"


def _shown(table: Table, value: float | None, sign: str = "") -> str:
    if value is None:
        return ""
    return f"{value:{sign}.{2 if 'acc' in table.metric else 6}f}"


def _grid(table: Table, figures: Sequence[Figure]) -> list[list[str]]:
    head = f"{table.rows_are or ''} \\ {table.columns_are}".strip(" \\")
    lines = [[head, *table.columns]]
    for row in table.rows:
        chosen = [figure for figure in figures if figure.row == row]
        lines.append([row, *(_cell(table, figure) for figure in chosen)])
        if any(figure.paper is not None for figure in chosen):
            paper = [_shown(table, figure.paper) for figure in chosen]
            lines.append([f"{row}, paper", *paper])
        if table.like_the_paper and any(_difference(figure) is not None for figure in chosen):
            differ = [_shown(table, _difference(figure), "+") for figure in chosen]
            lines.append([f"{row}, difference", *differ])
    return lines


def _cell(table: Table, figure: Figure) -> str:
    if figure.mean is None:
        return ", ".join(dict.fromkeys(figure.missing))
    shown = _shown(table, figure.mean)
    if figure.std is not None:
        shown += f" ± {_shown(table, figure.std)} ({len(figure.values)})"
    if figure.missing:
        shown += f" [{len(figure.missing)} {', '.join(dict.fromkeys(figure.missing))}]"
    return shown


def _costs(table: Table, figures: Sequence[Figure]) -> list[list[str]]:
    """What the finished places took, each a line; of an analysis, the one run of all places."""
    if table.analysis:
        figures = [dataclasses.replace(figure, row="", column="") for figure in figures[:1]]
    lines = [
        ["", "", "seeds", f"{name_of('knn_acc1')} (%)", "seconds", "images/s", "peak memory (MiB)"]
    ]
    for figure in figures:
        if figure.results:
            numbers = [figure.average(key) for key in ("knn_acc1", *_COSTS)]
            shown = ["" if number is None else f"{number:.4g}" for number in numbers]
            lines.append([figure.row, figure.column, str(len(figure.results)), *shown])
    return lines


def _difference(figure: Figure) -> float | None:
    known = figure.mean is not None and figure.paper is not None
    return figure.mean - figure.paper if known else None


def _line(figure: Figure, table: Table) -> dict[str, Any]:
    return {
        "row": figure.row,
        "column": figure.column,
        "metric": table.metric,
        "mean": rounded(figure.mean, table.metric),
        "std": rounded(figure.std, table.metric),
        "n": len(figure.values),
        "missing": len(figure.missing),
        "paper": figure.paper,
        "difference": (
            rounded(_difference(figure), table.metric) if table.like_the_paper else None
        ),
        **{key: figure.average(key) for key in ("knn_acc1", *_COSTS)},
    }


def _run_line(cell: Cell, table: Table) -> dict[str, Any]:
    line = {"row": cell.row, "column": cell.column, "seed": cell.seed, "state": cell.state}
    try:
        found = cell.results()
    except (OSError, ValueError):
        return {**line, "run": cell.run.fingerprint}
    keys = (*_EVERY_RUN, *_COSTS, "started")
    return {
        **line,
        table.metric: found["figures"].get(table.metric),
        **{key: found["figures"].get(key) for key in ("knn_acc1", "untrained_knn_acc1")},
        **{key: found.get(key) for key in keys},
        "versions": in_words(found["versions"]),
        "run": cell.run.fingerprint,
    }


def _facts(
    table: Table, figures: Sequence[Figure], cells: Sequence[Cell], overrides: Sequence[str]
) -> dict[str, str]:
    results = [result for figure in figures for result in figure.results]
    keys = dict.fromkeys([table.metric, *([] if table.analysis else ["knn_acc1"])])
    seeds = dict.fromkeys(str(cell.seed) for cell in cells)
    facts = {
        "metric": _METRICS.get(table.metric, table.metric) + "; mean ± std (number of seeds)",
        **{name_of(key): MEASURES[key][1] for key in keys if key in MEASURES},
        "scale": table.scale.name + (f", with {' '.join(overrides)}" if overrides else ""),
        "seeds": ", ".join(seeds),
        "cells": f"{sum(cell.finished for cell in cells)} of {len(cells)} finished",
    }
    for key in _EVERY_RUN:
        found = dict.fromkeys(str(result.get(key)) for result in results)
        if found:
            facts[key] = "; ".join(found)
    if table.paper:
        facts["paper's values"] = table.paper_is
    versions = dict.fromkeys(in_words(result["versions"]) for result in results)
    if versions:
        facts["versions"] = "; ".join(versions)
    return facts


def draw(table: Table, figures: Sequence[Figure], path: Path) -> None:
    """Means and standard deviations against the columns, a line a row; the paper's dashed."""
    figure, (axes,) = panels((table.columns_are, _METRICS.get(table.metric, table.metric)))
    columns = list(table.columns)
    for number, row in enumerate(table.rows):
        chosen = [f for f in figures if f.row == row and f.mean is not None]
        style = {"color": f"C{number % 10}", "marker": "o", "markersize": 4}
        if chosen:
            axes.errorbar(
                [columns.index(f.column) for f in chosen],
                [f.mean for f in chosen],
                [f.std or 0.0 for f in chosen],
                capsize=3,
                label=row,
                **style,
            )
        known = [f for f in figures if f.row == row and f.paper is not None]
        if known:
            places = [columns.index(f.column) for f in known]
            line = {**style, "marker": "x", "linestyle": "--", "alpha": 0.6}
            axes.plot(places, [f.paper for f in known], label=f"{row}, paper", **line)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    if axes.get_legend_handles_labels()[0]:  # beside the lines, however many
        figure.set_size_inches(7.5, 4)
        title = table.rows_are or None
        figure.legend(loc="outside right upper", fontsize="small", title=title)
    axes.set_title(f"{table.title}\n(scale {table.scale.name})", fontsize="medium")
    save_figure(figure, path)
