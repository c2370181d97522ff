"""From the summaries of runs to a table's figures, and whether they are in the paper's order."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simco_methods.tables.cells import Cell
from simco_methods.tables.definition import Ordering, Table


@dataclass(frozen=True)
class Figure:
    """One place of a table over its seeds.

    Attributes:
        row, column: the place.
        values: of the finished seeds.
        missing: the state of each of the others.
        paper: the paper's value, None where it is not known.
        results: of the finished seeds, as :meth:`.Cell.results` gives them.
    """

    row: str
    column: str
    values: tuple[float, ...]
    missing: tuple[str, ...]
    paper: float | None
    results: tuple[dict[str, Any], ...] = field(repr=False)

    @property
    def mean(self) -> float | None:
        """Of the seeds, None without any."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation, None below two seeds."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def average(self, key: str) -> float | None:
        """Mean over the seeds of a number of their summaries."""
        found = [r[key] for r in self.results if isinstance(r.get(key), int | float)]
        return statistics.fmean(found) if found else None


@dataclass(frozen=True)
class Verdict:
    """What the figures say to an ordering.

    Attributes:
        ordering: the paper's statement.
        holds: None if figures are missing or equal.
        text: for a reader.
    """

    ordering: Ordering
    holds: bool | None
    text: str


def collect(table: Table, cells: Sequence[Cell]) -> list[Figure]:
    """A figure for each place of a table, row by row.

    A finished run that has no number for it counts as missing, with the reason.
    """
    places: dict[tuple[str, str], list[Cell]] = {
        place: [] for place in itertools.product(table.rows, table.columns)
    }
    for cell in cells:
        if (cell.row, cell.column) in places:
            places[cell.row, cell.column].append(cell)
    figures = []
    for (row, column), found in places.items():
        read = [_read(cell, table.metric) for cell in found]
        results = [result for result in read if not isinstance(result, str)]
        values = tuple(result["figures"][table.metric] for result in results)
        missing = tuple(reason for reason in read if isinstance(reason, str))
        paper = table.paper.get(row, {}).get(column)
        figures.append(Figure(row, column, values, missing, paper, tuple(results)))
    return figures


def _read(cell: Cell, metric: str) -> dict[str, Any] | str:
    """A cell's results, or why it has no number."""
    if not cell.finished:
        return cell.state
    try:
        results = cell.results()
    except (OSError, ValueError):
        return "unreadable"
    value = results["figures"].get(metric)
    return f"no {metric}" if value is None or not math.isfinite(value) else results


def judge(table: Table, figures: Sequence[Figure]) -> list[Verdict]:
    """Whether each of the paper's orderings holds, by the means, with the pairs where not."""
    return [_judge(ordering, figures) for ordering in table.orderings]


def _judge(ordering: Ordering, figures: Sequence[Figure]) -> Verdict:
    by_row = ordering.along == "rows"
    means = {((f.column, f.row) if by_row else (f.row, f.column)): f.mean for f in figures}
    everything = list(dict.fromkeys(label for _, label in means))
    compared, missing = [], 0
    for place in ordering.inside:
        if ordering.best:
            pairs = [(ordering.labels[0], other) for other in everything]
            pairs = [pair for pair in pairs if pair[0] != pair[1]]
        else:
            pairs = list(itertools.pairwise(ordering.labels))
        gaps = []
        for high, low in pairs:
            a, b = means[place, high], means[place, low]
            if a is None or b is None:
                missing += 1
            else:
                gaps.append((a - b, place, high, low))
        if place in ordering.but:  # said not to be the best there
            gaps = [(-gap, place, f"not {high}", low) for gap, _, high, low in sorted(gaps)[:1]]
        compared += gaps
    wrong = [gap for gap in compared if gap[0] < 0]
    equal = sum(gap[0] == 0 for gap in compared)
    if wrong:
        shown = "; ".join(f"{p}: {high} - {low} = {gap:+.4g}" for gap, p, high, low in wrong)
        shown = f"does not hold in {len(wrong)} of {len(compared)} comparisons ({shown})"
        rest = {"equal": equal, "missing": missing}
        shown += "".join(f"; {number} {state}" for state, number in rest.items() if number)
        return Verdict(ordering, False, shown)
    if missing or equal or not compared:
        held = f"{len(compared) - equal} of {len(compared) + missing} comparisons hold"
        states = {"equal to the last digit": equal, "missing": missing}
        held += "".join(f", {number} {state}" for state, number in states.items() if number)
        return Verdict(ordering, None, held)
    smallest = min(compared)[0]
    return Verdict(ordering, True, f"holds (smallest difference {smallest:.4g})")
