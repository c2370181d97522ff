"""A backbone's weights among those of a file, under whatever prefix they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from simco_methods.checkpoints import below, load_weights

# What a backbone has at its end, in the files of torchvision, timm and others; not of the encoder.
_HEADS = ("fc", "head", "heads", "head_dist", "classifier", "projector", "predictor", "pre_logits")
# Buffers that older versions of timm saved and today's make.
_MADE = ("attn_mask", "relative_position_index", "k_bias", "num_batches_tracked")
_AVERAGES = ("momentum", "teacher", "target", "encoder_k", "ema.")


def load_backbone(
    path: Path, backbone: nn.Module, state: Mapping[str, Tensor], what: str, prefix: str | None
) -> None:
    """Loads a backbone from a file's weights, all of it, apart from a head.

    Args:
        path: of the file.
        backbone: what gets them.
        state: the file's names to tensors.
        what: what to call the backbone in an error.
        prefix: of the backbone's names in the file, or the end of it; None for the one with most of
            them.

    Raises:
        ValueError: weights that are not there, not known, of another shape or not finite.
    """
    own = backbone.state_dict()
    found = below(state, _prefix(path, state, own, prefix))
    if found.keys() & own.keys():  # else all that there is belongs into the error
        for key in found.keys() - own.keys():
            if key.split(".")[0] in _HEADS or key.rsplit(".", 1)[-1] in _MADE:
                del found[key]
        for key in own.keys() - found.keys():
            if key.rsplit(".", 1)[-1] in _MADE:
                found[key] = own[key]
    broken = [key for key, value in found.items() if key in own and not value.isfinite().all()]
    if broken:
        raise ValueError(f"the weights in {path} are not finite: {', '.join(sorted(broken)[:3])}")
    load_weights(path, backbone, found, what)


def _prefix(
    path: Path, state: Mapping[str, Tensor], own: Mapping[str, Tensor], wanted: str | None
) -> str:
    """The prefix under which ``state`` has most of the names in ``own``; of several with as many a
    trained network's before a moving average's, then the shortest."""
    counts: Counter[str] = Counter()
    for key in state:
        parts = key.split(".")
        for start in range(len(parts)):
            if ".".join(parts[start:]) in own:
                counts["".join(f"{part}." for part in parts[:start])] += 1
    ranked = sorted(
        counts, key=lambda p: (-counts[p], any(word in p for word in _AVERAGES), len(p), p)
    )
    if wanted is None:
        return ranked[0] if ranked else ""
    ending = f".{wanted.strip('.')}."
    for prefix in ranked:
        if f".{prefix}".endswith(ending):
            return prefix
    there = ", ".join(f"{prefix or 'none'} ({counts[prefix]})" for prefix in ranked[:6])
    raise ValueError(
        f"prefix={wanted}: no weight of the network in {path} has it; names of its weights follow "
        f"{there or 'no prefix at all'}"
    )
