"""What a benchmark leaves: JSON, Markdown and a plot of the ratios."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from simco_methods.analysis.finding import canvas
from simco_methods.benchmark.timing import Comparison
from simco_methods.files import write_json, write_text
from simco_methods.machine import hardware, in_words, versions
from simco_methods.page import markdown_table


def write(
    folder: Path,
    device: torch.device,
    comparisons: Sequence[Comparison],
    more: dict[str, dict[str, Any]],
) -> None:
    """Writes ``benchmark.json``, ``benchmark.md`` and ``benchmark.png``.

    Parts of an earlier report there, of the same machine and versions, stay if they were not
    measured again.

    Args:
        folder: where; made if it is not there.
        device: that was measured.
        comparisons: what was.
        more: other results, for the JSON: each name's ``data``, and as Markdown its ``text``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    machine, path = hardware(device, 1), folder / "benchmark.json"
    made_on = {"hardware": machine, "versions": versions()}
    if path.exists():
        earlier = json.loads(path.read_text(encoding="utf-8"))
        if {key: earlier.get(key) for key in made_on} == made_on:
            parts = {c.part for c in comparisons}
            kept = [c for c in earlier["comparisons"] if c["part"] not in parts]
            names = {field.name for field in dataclasses.fields(Comparison) if field.init}
            comparisons = [
                *(Comparison(**{k: v for k, v in c.items() if k in names}) for c in kept),
                *comparisons,
            ]
            more = {**earlier["more"], **more}
    measured = [{**dataclasses.asdict(c), "ratio": c.ratio} for c in comparisons]
    write_json(path, {**made_on, "comparisons": measured, "more": more})
    texts = [result["text"] for result in more.values()]
    lines = [f"{machine}; {in_words(versions())}", "", table(comparisons), "", *texts]
    write_text(folder / "benchmark.md", "\n".join(lines) + "\n")
    drawn = [comparison for comparison in comparisons if comparison.ratios]
    if drawn:
        draw(drawn, folder / "benchmark.png", machine)


def table(comparisons: Sequence[Comparison]) -> str:
    """Markdown: what, against what, ratio with spread, medians, target."""
    lines = [["part", "what", "against", "ratio", "spread", "here", "there", "", "target"]]
    for c in comparisons:
        spread = f"{min(c.ratios):.2f} - {max(c.ratios):.2f}" if len(c.ratios) > 1 else ""
        values = [f"{median(side):,.4g}" for side in (c.ours, c.others)]
        aim = f"{c.target:g}" if c.target else ""
        lines.append([c.part, c.what, c.other, f"{c.ratio:.2f}", spread, *values, c.unit, aim])
    return markdown_table(lines)


def draw(comparisons: Sequence[Comparison], path: Path, title: str) -> None:
    """Ratios as bars, from the least to the greatest pair a line, targets as marks."""
    figure = canvas(11, 0.42 * len(comparisons) + 1.5)
    axes = figure.subplots()
    places = range(len(comparisons))
    ratios = [c.ratio for c in comparisons]
    spread = [
        [c.ratio - min(c.ratios) for c in comparisons],
        [max(c.ratios) - c.ratio for c in comparisons],
    ]
    axes.barh(places, ratios, xerr=spread, color="tab:blue", alpha=0.7, ecolor="black")
    aims = [(c.target, place) for place, c in enumerate(comparisons) if c.target]
    if aims:
        axes.plot(*zip(*aims, strict=True), "|", color="tab:red", markersize=14, label="target")
        axes.legend(loc="lower right")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(y=0.01)
    axes.set_yticks(places, [f"{c.part}: {c.what}\nagainst {c.other}" for c in comparisons])
    axes.tick_params(axis="y", labelsize="x-small")
    axes.invert_yaxis()
    axes.set_xlabel(
        "times as fast, or as little memory, as the other side (median, least, greatest)"
    )
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, dpi=120)
