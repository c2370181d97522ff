"""The geometry of the embedding: alignment, uniformity, rank, spread, cosines."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from simco_methods.analysis.finding import Finding, panels
from simco_methods.analysis.samples import Samples
from simco_methods.losses import l2_normalize
from simco_methods.methods.monitor import effective_rank, embedding_std

TITLE = "Geometry"
MEANING = (
    "Alignment is the mean squared distance of an anchor to its positive, uniformity the log of "
    "the mean Gaussian potential of different anchors (Wang and Isola, arXiv 2005.10242; lower is "
    "better for both). The effective rank says how many of the dimensions are used."
)
TEXT = (
    f"{MEANING} Right: the standard deviation of each dimension; 1 is that of points spread over "
    "the sphere."
)


def measure(query: Tensor, key: Tensor) -> dict[str, Any]:
    """Numbers of one representation.

    Args:
        query, key: (N, D) L2-normalised, N >= 2.

    Returns:
        ``alignment``, ``uniformity`` (of the anchors, different ones, t = 2), ``effective_rank``
        (from 1 to D), ``std`` (mean over dimensions), ``dimensions``, the mean cosine of
        ``positives`` and of ``negatives`` (different images' view 1 and view 2).
    """
    cosine = query @ key.T
    apart = ~torch.eye(len(query), dtype=torch.bool, device=query.device)
    distance = (2 - 2 * (query @ query.T)).clamp(min=0)[apart]
    return {
        "dimensions": query.shape[1],
        "alignment": (query - key).square().sum(dim=1).mean().item(),
        "uniformity": torch.exp(-2 * distance.double()).mean().log().item(),
        "effective_rank": effective_rank(query).item(),
        "std": embedding_std(query).item(),
        "positives": cosine.diagonal().mean().item(),
        "negatives": cosine[apart].mean().item(),
    }


def draw(representations: dict[str, tuple[Tensor, Tensor]]) -> Figure:
    """Histograms of the cosines, and the standard deviations of the dimensions in order."""
    figure, axes = panels(
        *((f"cosine similarity, {name}", "density") for name in representations),
        ("dimension, by its spread (share)", "standard deviation x sqrt(D)"),
    )
    edges = np.linspace(-1, 1, 81)
    for panel, (name, (query, key)) in zip(axes, representations.items(), strict=False):
        cosine = (query @ key.T).cpu()
        apart = ~torch.eye(len(query), dtype=torch.bool)
        for values, label in ((cosine.diagonal(), "positives"), (cosine[apart], "negatives")):
            density, _ = np.histogram(values.numpy(), bins=edges, density=True)
            panel.stairs(density, edges, fill=True, alpha=0.5, label=label)
        panel.set_xlim(min(0.0, cosine.min().item()) - 0.05, 1.05)
        panel.legend(fontsize="small")
        spread = query.std(dim=0).sort(descending=True).values.cpu() * query.shape[1] ** 0.5
        axes[-1].plot(np.linspace(0, 1, len(spread)), spread, label=name)
    axes[-1].axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes[-1].set_ylim(bottom=0)
    axes[-1].legend(fontsize="small")
    return figure


def run(samples: Samples) -> Finding:
    """Of a checkpoint's anchors: the embedding, and the features before the projector."""
    pairs = samples.pairs
    representations = {
        "embedding z": (pairs.query, pairs.key),
        "backbone features": (
            l2_normalize(pairs.query_features),
            l2_normalize(pairs.key_features),
        ),
    }
    # N x N cosines: as many anchors as a histogram needs.
    representations = {
        name: (query[:4096], key[:4096]) for name, (query, key) in representations.items()
    }
    rows = [
        {"representation": name, "anchors": len(pair[0]), **measure(*pair)}
        for name, pair in representations.items()
    ]
    return Finding("geometry", TITLE, TEXT, rows, {"": draw(representations)})
