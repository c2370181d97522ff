"""Anchor hardness: its distribution, and the images at both of its ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from simco_methods.analysis.finding import (
    Finding,
    canvas,
    hardness_axis,
    log_odds,
    shade,
)
from simco_methods.analysis.samples import KEY, QUERY, Samples

TITLE = "Anchor hardness"
MEANING = (
    "The scalar component W = 1 - p+ of each anchor (Eq. 5): near 1 where the negatives outweigh "
    "the positive, near 0 where the anchor has nothing left to learn. It can tell anchors apart "
    "only where it is spread."
)
TEXT = (
    f"{MEANING} Against the whole dictionary. Below: the anchors at both ends, each with its "
    "positive and its most similar negative."
)
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SHOWN = 8


def measure(hardness: Tensor, temperatures: Sequence[float]) -> list[dict[str, Any]]:
    """Mean, spread and quantiles of W, (T, N), a row a temperature.

    ``easy`` and ``hard`` are the shares of anchors with W below 0.1 and above 0.9.
    """
    rows = []
    for tau, values in zip(temperatures, hardness, strict=True):
        quantiles = values.quantile(values.new_tensor(_QUANTILES)).tolist()
        row = {"temperature": tau, "mean": values.mean().item(), "std": values.std().item()}
        row |= {f"q{100 * q:02.0f}": v for q, v in zip(_QUANTILES, quantiles, strict=True)}
        row["easy"] = (values < 0.1).double().mean().item()
        row["hard"] = (values > 0.9).double().mean().item()
        rows.append(row)
    return rows


def draw(hardness: Tensor, temperatures: Sequence[float], size: int) -> Figure:
    """Histograms of W, one below the other, on an axis of its log-odds.

    Each has a scale of its own: the spreads differ by orders of magnitude. The axis ends where one
    anchor in 200 is beyond it at the widest temperature; those are in the outermost bars.
    """
    odds = log_odds(hardness).cpu().numpy()
    low = np.quantile(odds, 0.005, axis=1).min() - 0.1
    high = np.quantile(odds, 0.995, axis=1).max() + 0.1
    edges = np.linspace(low, high, 101)
    figure = canvas(7.0, 1.0 + 0.9 * len(temperatures))
    rows = figure.subplots(len(temperatures), 1, sharex=True, squeeze=False)[:, 0]
    for number, (tau, values, panel) in enumerate(zip(temperatures, odds, rows, strict=True)):
        counts, _ = np.histogram(values.clip(low, high), bins=edges)
        share = 100 * counts / counts.sum()
        panel.stairs(share, edges, color=shade(number, len(temperatures)), fill=True)
        panel.set_ylabel(f"{tau:g}", rotation=0, ha="right", va="center")
        panel.yaxis.set_major_locator(MaxNLocator(3))
        panel.yaxis.tick_right()
        panel.grid(alpha=0.3)
        panel.set_xlim(low, high)
    hardness_axis(rows[-1])
    rows[-1].set_xlabel(f"anchor hardness W against {size:,} keys")
    figure.supylabel("temperature", fontsize="medium")
    figure.suptitle("share of anchors (%)", fontsize="small", ha="right", x=0.99)
    return figure


def run(samples: Samples) -> Finding:
    """Of a checkpoint's anchors against its whole dictionary."""
    pairs, size = samples.pairs, samples.sizes[-1]
    # The distribution at each temperature; the order of the anchors at the one that weighs them.
    temperatures = samples.sweep.temperatures
    hardness = samples.sweep.hardness[:, -1]
    rows = measure(hardness, temperatures)
    order = samples.sweep.logit[temperatures.index(samples.tau), -1].argsort()
    ends = {"hardest": order.flip(0)[:_SHOWN].tolist(), "easiest": order[:_SHOWN].tolist()}
    at_tau = hardness[temperatures.index(samples.tau)]
    figures = {"": draw(hardness, temperatures, size), "images": _pictures(samples, ends, at_tau)}
    summary = {
        "dictionary": size,
        "order_at_temperature": samples.tau,
        **{
            name: [
                {"image": pairs.items[row][1], "hardness": at_tau[row].item()} for row in anchors
            ]
            for name, anchors in ends.items()
        },
    }
    return Finding("hardness", TITLE, TEXT, rows, figures, summary)


def _pictures(samples: Samples, ends: dict[str, list[int]], hardness: Tensor) -> Figure:
    """A row of anchors, positives and nearest negatives for each end."""
    pairs = samples.pairs
    encoded = samples.settings.keys == "encoder"  # of a queue's keys no image is known
    kinds = ["anchor\n(view 1)", "positive\n(view 2)"] + (["nearest\nnegative"] if encoded else [])
    shown = max(len(anchors) for anchors in ends.values())
    lines = len(ends) * len(kinds)
    figure = canvas(1.15 * shown + 1.2, 1.2 * lines + 0.6)
    axes = figure.subplots(lines, shown, squeeze=False)
    for panel in axes.flat:
        panel.set_xticks([])
        panel.set_yticks([])
    for end, (name, anchors) in enumerate(ends.items()):
        for column, anchor in enumerate(anchors):
            item = pairs.items[anchor]
            pictures = [samples.picture(item, QUERY), samples.picture(item, KEY)]
            if encoded:
                nearest = int(torch.argmax(samples.dictionary @ pairs.query[anchor]))
                pictures.append(samples.picture(samples.dictionary_items[nearest], KEY))
            for line, picture in enumerate(pictures):
                panel = axes[end * len(kinds) + line][column]
                panel.imshow(picture)
                if column == 0:
                    first = f"{name}\n" if line == 0 else ""
                    panel.set_ylabel(f"{first}{kinds[line]}", fontsize="small")
                if line == 0:
                    panel.set_title(f"p+ = {1 - hardness[anchor]:.2g}", fontsize="small")
    title = f"anchors by hardness W = 1 - p+ at temperature {samples.tau:g}"
    figure.suptitle(title, fontsize="medium")
    return figure
