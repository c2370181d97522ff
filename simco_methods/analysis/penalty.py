"""Penalty entropy against dictionary size and temperature (Fig. 3 of the paper)."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from simco_methods.analysis.finding import Finding, Rows, panels, shade
from simco_methods.analysis.samples import Samples
from simco_methods.analysis.sweep import Sweep
from simco_methods.losses import penalty_entropy

TITLE = "Penalty entropy"
MEANING = (
    "How evenly the pull is shared among the anchors of a batch (r+ of Eq. 8, the scalar "
    "component), and among an anchor's negatives (the vector component). 1 is an even share, lower "
    "means that few anchors or negatives take most of it."
)
TEXT = (
    f"{MEANING} Mean over batches, bars are their standard deviation; in the middle what r+ lacks "
    "to an even share."
)


def measure(sweep: Sweep, group: int) -> list[dict[str, Any]]:
    """Normalised entropies and hardness for each temperature and size.

    Args:
        sweep: of the anchors over the dictionary.
        group: anchors in a batch, among which r_+ is shared.

    Returns:
        A row for each: ``anchor_entropy`` (of r_+, mean over batches), ``negative_entropy`` (of the
        negatives' weights, mean over anchors of each batch, then over batches), each with ``_std``
        over the batches (None for one), ``hardness`` and ``hardness_std`` (W over all anchors), and
        ``hardness_variation``, W's standard deviation over its mean.
    """
    anchors = penalty_entropy(sweep.relative_penalty(group))
    batches = anchors.shape[-1]
    negatives = sweep.negative_entropy[..., : batches * group].unflatten(-1, (batches, group))
    negatives = negatives.mean(dim=-1)
    hardness = sweep.hardness
    rows = []
    for t, tau in enumerate(sweep.temperatures):
        for s, size in enumerate(sweep.sizes):
            mean, std = hardness[t, s].mean().item(), hardness[t, s].std().item()
            row = {"temperature": tau, "size": size, "batches": batches, "anchors": group}
            for name, values in (("anchor", anchors[t, s]), ("negative", negatives[t, s])):
                row[f"{name}_entropy"] = values.mean().item()
                row[f"{name}_entropy_std"] = values.std().item() if batches > 1 else None
            variation = std / mean if mean > 0 else None
            row |= {"hardness": mean, "hardness_std": std, "hardness_variation": variation}
            rows.append(row)
    return rows


def draw(rows: Rows) -> Figure:
    """Both entropies against the size, a line a temperature; of r_+ also what lacks to 1."""
    figure, axes = panels(
        ("dictionary size (keys)", "normalised entropy of r+ (anchors)"),
        ("dictionary size (keys)", "1 - normalised entropy of r+"),
        ("dictionary size (keys)", "normalised entropy of the negatives' weights"),
    )
    temperatures = list(dict.fromkeys(row["temperature"] for row in rows))
    for number, tau in enumerate(temperatures):
        chosen = [row for row in rows if row["temperature"] == tau]
        sizes = [row["size"] for row in chosen]
        style = {
            "color": shade(number, len(temperatures)),
            "marker": "o",
            "markersize": 3,
            "label": f"{tau:g}",
        }
        for panel, name in ((axes[0], "anchor_entropy"), (axes[2], "negative_entropy")):
            spread = [row[f"{name}_std"] or 0.0 for row in chosen]
            panel.errorbar(sizes, [row[name] for row in chosen], spread, capsize=2, **style)
        axes[1].plot(sizes, [1 - row["anchor_entropy"] for row in chosen], **style)
    for panel in axes:
        panel.set_xscale("log", base=2)
    axes[1].set_yscale("log")
    axes[0].legend(title="temperature", fontsize="small")
    return figure


def run(samples: Samples) -> Finding:
    """Of a checkpoint's anchors and dictionary."""
    rows = measure(samples.sweep.at(samples.temperatures), samples.group)
    return Finding("penalty", TITLE, TEXT, rows, {"": draw(rows)})
