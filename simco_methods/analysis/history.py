"""What :mod:`simco_methods.analysis.during` has measured, as tables, curves and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simco_methods.analysis import consistency, geometry, gradient, hardness, penalty
from simco_methods.analysis.finding import Finding, Rows, near, panels, shade
from simco_methods.analysis.report import write_report

_NOTE = (
    " Measured on the training step's own batches, the networks in training mode, against the keys "
    "of the batches before."
)
_CURVES = 5


def write_history(
    folder: Path, name: str, rows: dict[str, Rows], tau: float, figures: bool
) -> None:
    """Writes a table, and with ``figures`` JSON, curves and ``report.html``, for each measurement.

    Args:
        folder: where to.
        name: of the run.
        rows: a measurement to its rows, each with the ``step`` it was made at.
        tau: the temperature that weighs the anchors, near which what depends on one is shown.
        figures: whether the run is over.
    """
    written = []
    for kind, (title, text, draw) in _KINDS.items():
        if rows.get(kind):
            figure = {"": draw(rows[kind], tau)} if figures else {}
            finding = Finding(kind, title, text + _NOTE, rows[kind], figure)
            written.append((finding, finding.write(folder)))
    if figures:
        steps = sorted({row["step"] for row in rows["geometry"]})
        facts = {
            "checkpoint": f"{name}, while it trained",
            "measured": f"{len(steps)} times, at steps {steps[0]} to {steps[-1]}",
        }
        write_report(folder / "report.html", facts, written, {})


def _lines(panel: Axes, rows: Rows, value: str, by: str, title: str | None = None) -> None:
    """``value`` against the step, a line for each ``by``."""
    kinds = sorted({row[by] for row in rows})
    for number, kind in enumerate(kinds):
        chosen = [row for row in rows if row[by] == kind]
        label = f"{kind:g}" if isinstance(kind, float) else str(kind)
        steps = [row["step"] for row in chosen]
        values = [row[value] for row in chosen]
        panel.plot(steps, values, marker=".", color=shade(number, len(kinds)), label=label)
    if title:
        panel.legend(title=title, fontsize="small")


def _penalty(rows: Rows, tau: float) -> Figure:
    rows = [{**row, "deficit": max(1 - row["anchor_entropy"], 1e-16)} for row in rows]
    at_tau, largest = near(rows, "temperature", tau), near(rows, "size", 1e9)
    figure, axes = panels(
        ("step", f"1 - normalised entropy of r+, temperature {at_tau[0]['temperature']:g}"),
        ("step", f"1 - normalised entropy of r+, {largest[0]['size']} keys"),
        ("step", f"entropy of the negatives' weights, {largest[0]['size']} keys"),
    )
    _lines(axes[0], at_tau, "deficit", "size", "keys")
    _lines(axes[1], largest, "deficit", "temperature", "temperature")
    _lines(axes[2], largest, "negative_entropy", "temperature")
    for panel in axes[:2]:
        panel.set_yscale("log")
    return figure


def _hardness(rows: Rows, tau: float) -> Figure:
    rows = [{**row, "lacks": 1 - row["mean"]} for row in rows]
    figure, (left, right) = panels(
        ("step", "1 - mean anchor hardness W"), ("step", "standard deviation of W")
    )
    _lines(left, rows, "lacks", "temperature", "temperature")
    _lines(right, rows, "std", "temperature")
    left.set_yscale("log")
    right.set_yscale("log")
    return figure


def _consistency(rows: Rows, tau: float) -> Figure:
    figure, (panel,) = panels(("age of the stored key (batches)", "cosine to today's key"))
    steps = sorted({row["step"] for row in rows})
    shown = sorted({steps[round(i * (len(steps) - 1) / _CURVES)] for i in range(1, _CURVES + 1)})
    for number, step in enumerate(shown):
        chosen = [row for row in rows if row["step"] == step]
        ages = [row["age"] for row in chosen]
        cosines = [row["cosine"] for row in chosen]
        panel.plot(ages, cosines, marker=".", color=shade(number, len(shown)), label=str(step))
    panel.legend(title="step", fontsize="small")
    return figure


def _orders(rows: Rows, tau: float) -> Figure:
    figure, (left, right) = panels(
        ("step", "cosine to today's keys"), ("step", "agreement of pairwise cosines")
    )
    _lines(left, rows, "cosine", "order", "keys")
    _lines(right, rows, "agreement", "order")
    return figure


def _geometry(rows: Rows, tau: float) -> Figure:
    kinds: Sequence[tuple[str, ...]] = (
        ("alignment", "uniformity"),
        ("effective_rank",),
        ("positives", "negatives"),
    )
    labels = ("alignment, uniformity", "effective rank", "mean cosine")
    figure, axes = panels(*(("step", label) for label in labels))
    for panel, names in zip(axes, kinds, strict=True):
        for name in names:
            steps = [row["step"] for row in rows]
            panel.plot(steps, [row[name] for row in rows], marker=".", label=name)
        if len(names) > 1:
            panel.legend(fontsize="small")
    return figure


def _gradient(rows: Rows, tau: float) -> Figure:
    figure, (left, right) = panels(
        ("step", "spread of the scalar W (std of the log)"),
        ("step", "spread of the vector's length (std of the log)"),
    )
    _lines(left, rows, "scalar_spread", "temperature", "temperature")
    _lines(right, rows, "vector_spread", "temperature")
    left.set_yscale("log")
    return figure


_KINDS = {
    "penalty": ("Penalty entropy", penalty.MEANING, _penalty),
    "hardness": ("Anchor hardness", hardness.MEANING, _hardness),
    "consistency": ("Consistency of keys with today's encoder", consistency.MEANING, _consistency),
    "orders": ("Consistency of a dictionary's keys", consistency.MEANING_ORDERS, _orders),
    "geometry": ("Geometry", geometry.MEANING, _geometry),
    "gradient": ("Gradient check", gradient.MEANING, _gradient),
}
