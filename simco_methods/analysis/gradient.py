"""The gradient on an anchor: Eq. 4's two components against autograd, on real embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from simco_methods.analysis.finding import (
    Finding,
    Rows,
    hardness_axis,
    log_odds,
    panels,
    shade,
)
from simco_methods.analysis.samples import Samples
from simco_methods.losses import anchor_hardness, info_nce_loss, negative_penalty

TITLE = "Gradient check"
MEANING = (
    "-dL/dq = (W / tau)(k+ - sum_j p_j k_j), Eq. 4: the product of the scalar W and the vector in "
    "brackets, against what autograd gives for InfoNCE on the embeddings at hand, in float32 and "
    "float64. Where log W varies more over the anchors than the log of the vector's length, it is "
    "the scalar component that decides which anchors train."
)
TEXT = f"{MEANING} Left: each anchor's two components."
# Anchors whose gradients are checked, so that the weights of the negatives fit anywhere.
_CHECKED = 256


def measure(
    query: Tensor, key: Tensor, negatives: Tensor | None, temperatures: Sequence[float]
) -> tuple[list[dict[str, Any]], list[tuple[Tensor, Tensor]]]:
    """Errors of the decomposition, and the sizes of both components.

    Args:
        query, key: (N, D) L2-normalised.
        negatives: (M, D), or None for the other keys.
        temperatures: of InfoNCE.

    Returns:
        A row a temperature: ``error_float32`` and ``error_float64``, the largest difference of
        autograd's gradient from float64's Eq. 4 relative to the largest entry; ``scalar`` and
        ``vector``, the means of W and of the vector's length; ``scalar_spread`` and
        ``vector_spread``, the standard deviations over anchors of their logarithms. And (W, length)
        of the anchors, (N,) each, for every temperature.
    """
    exact = [t if t is None else t.double() for t in (query, key, negatives)]
    rows, components = [], []
    for tau in temperatures:
        hardness = anchor_hardness(*exact, tau)
        weights = negative_penalty(*exact, tau)
        bank = exact[1] if negatives is None else exact[2]
        vector = exact[1] - weights @ bank
        expected = -hardness.unsqueeze(1) / tau * vector / len(query)
        row: dict[str, Any] = {"temperature": tau}
        for name, dtype in (("float32", torch.float32), ("float64", torch.float64)):
            found = _gradient([t if t is None else t.to(dtype) for t in exact], tau)
            largest = expected.abs().max().clamp(min=1e-30)  # all zero for a collapsed encoder
            error = (found.double() - expected).abs().max() / largest
            row[f"error_{name}"] = error.item()
        length = vector.norm(dim=1)
        row |= {
            "scalar": hardness.mean().item(),
            "vector": length.mean().item(),
            "scalar_spread": hardness.log().std().item(),
            "vector_spread": length.log().std().item(),
        }
        rows.append(row)
        components.append((hardness, length))
    return rows, components


def _gradient(tensors: Sequence[Tensor | None], tau: float) -> Tensor:
    query, key, negatives = tensors
    with torch.enable_grad():
        query = query.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(info_nce_loss(query, key, negatives, tau), query)
    return gradient


def draw(rows: Rows, components: Sequence[tuple[Tensor, Tensor]]) -> Figure:
    """Each anchor's components, and their spreads against the temperature."""
    figure, (left, right) = panels(
        ("scalar component W", "length of the vector component"),
        ("temperature", "spread over anchors (std of the log)"),
    )
    temperatures = [row["temperature"] for row in rows]
    for number, (tau, (hardness, length)) in enumerate(zip(temperatures, components, strict=True)):
        colour = shade(number, len(temperatures))
        left.scatter(log_odds(hardness).cpu(), length.cpu(), s=4, color=colour, label=f"{tau:g}")
    hardness_axis(left)
    left.legend(title="temperature", fontsize="small", markerscale=2)
    for name, label in (("scalar_spread", "scalar W"), ("vector_spread", "vector's length")):
        right.plot(temperatures, [row[name] for row in rows], marker="o", label=label)
    right.set_xscale("log")
    right.set_ylim(bottom=0)
    right.legend(fontsize="small")
    return figure


def run(samples: Samples) -> Finding:
    """Of a checkpoint's anchors against its dictionary."""
    pairs = samples.pairs
    query, key = pairs.query[:_CHECKED], pairs.key[:_CHECKED]
    rows, components = measure(query, key, samples.dictionary, samples.temperatures)
    summary = {
        "anchors": len(query),
        "dictionary": len(samples.dictionary),
        "largest_error_float32": max(row["error_float32"] for row in rows),
        "largest_error_float64": max(row["error_float64"] for row in rows),
    }
    figures = {"": draw(rows, components)}
    return Finding("gradient", TITLE, TEXT, rows, figures, summary)
