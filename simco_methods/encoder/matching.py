"""A backbone's weights among those of a file, under whatever prefix they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from simco_methods.checkpoints import below, load_weights

# What a backbone has at its end, in the files of torchvision, timm and others; not of the encoder.
_HEADS = ("fc", "head", "head_dist", "classifier", "projector", "predictor", "pre_logits")
# Buffers that older versions of timm saved and today's make.
_MADE = ("attn_mask", "relative_position_index", "k_bias", "num_batches_tracked")
_AVERAGES = ("momentum", "teacher", "target", "encoder_k", "ema")


def load_backbone(
    path: Path, backbone: nn.Module, state: Mapping[str, Tensor], what: str, prefix: str | None
) -> None:
    """Loads a backbone from a file's weights, all of it, apart from a head.

    Args:
        path: of the file.
        backbone: what gets them.
        state: the file's names to tensors.
        what: what to call the backbone in an error.
        prefix: of the backbone's names in the file; None for the one with most of them.

    Raises:
        ValueError: weights that are not there, not known, of another shape or not finite.
    """
    own = backbone.state_dict()
    if prefix is None:
        prefix = most_matching(state, own)
    elif not any(key.startswith(prefix) for key in state):
        there = ", ".join(sorted({f"{key.split('.')[0]}." for key in state})[:8])
        raise ValueError(f"prefix={prefix}: no weight in {path} begins so; there are {there}")
    found = below(state, prefix)
    for key in set(found) - set(own):
        if key.split(".")[0] in _HEADS or key.rsplit(".", 1)[-1] in _MADE:
            del found[key]
    for key in set(own) - set(found):
        if found and key.rsplit(".", 1)[-1] in _MADE:
            found[key] = own[key]
    load_weights(path, backbone, found, what)
    broken = [key for key, value in found.items() if not torch.isfinite(value).all()]
    if broken:
        raise ValueError(f"the weights in {path} are not finite: {', '.join(broken[:3])}")


def most_matching(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """The prefix under which ``state`` has most of the names in ``own``; of several with as many a
    trained network's before a moving average's, then the shortest."""
    counts: Counter[str] = Counter()
    for key in state:
        parts = key.split(".")
        for start in range(len(parts)):
            if ".".join(parts[start:]) in own:
                counts["".join(f"{part}." for part in parts[:start])] += 1
    if not counts:
        return ""
    return min(counts, key=lambda p: (-counts[p], any(word in p for word in _AVERAGES), len(p), p))
