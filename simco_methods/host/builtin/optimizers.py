"""Optimisers by solo-learn's names, and parameter groups without weight decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from timm.optim import Lars
from torch.optim import Optimizer


def lars(
    params,
    lr: float,
    weight_decay: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    eta: float = 1e-3,
    eps: float = 1e-8,
    clip_lr: bool = False,
    exclude_bias_n_norm: bool = False,
) -> Optimizer:
    """timm's LARS under solo-learn's argument names: adapts every tensor, whatever its decay, or
    with ``exclude_bias_n_norm`` only those of more than one dimension."""
    params = [{**group, "params": list(group["params"]), "always_adapt": True} for group in params]
    if exclude_bias_n_norm:
        params = without_decay_on_vectors(params)
        for group in params:
            group["always_adapt"] = group["params"][0].ndim > 1
    return Lars(
        params,
        lr=lr,
        weight_decay=weight_decay,
        momentum=momentum,
        dampening=dampening,
        nesterov=nesterov,
        trust_coeff=eta,
        eps=eps,
        trust_clip=clip_lr,
    )


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": torch.optim.SGD,
    "lars": lars,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def without_decay_on_vectors(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Splits each group in two: matrices as they were, tensors of one dimension or less at decay 0.

    Args:
        groups: parameter groups; every other setting (name, lr) is kept by both halves.

    Returns:
        The groups that have parameters.
    """
    split = []
    for group in groups:
        params = list(group["params"])
        name = group.get("name")
        halves = [
            {**group, "params": [p for p in params if p.ndim > 1]},
            {
                **group,
                **({"name": f"{name}_no_decay"} if name else {}),
                "params": [p for p in params if p.ndim <= 1],
                "weight_decay": 0,
            },
        ]
        split += [half for half in halves if half["params"]]
    return split
