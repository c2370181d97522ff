"""The two components of InfoNCE's gradient on an anchor, and what is measured on them (Eq. 4-8)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from simco_methods.losses.kernel import (
    anchor_logit,
    check_temperature,
    full_precision,
    split_negatives,
)


@full_precision
def anchor_hardness(
    query: Tensor,
    key: Tensor,
    negatives: Tensor | None = None,
    tau: float = 0.1,
    *,
    all_keys: Tensor | None = None,
    positive_index: Tensor | None = None,
) -> Tensor:
    r"""The scalar component W = sum_j p_j = 1 - p_+ of the gradient on each anchor.

    :math:`-\partial L / \partial q = (W / \tau)(k_+ - \sum_j \hat p_j k_j)`, Eq. 4-6 of Zhang et
    al., CVPR 2022 (https://arxiv.org/abs/2203.17248).

    Args:
        query: anchors, (N, D), L2-normalised.
        key: positives, (N, D), L2-normalised.
        negatives: (M, D), L2-normalised; None takes the other rows of ``key``.
        tau: temperature, finite and above 0.
        all_keys: (M, D), the keys of all processes, whose other rows are taken in place of those of
            ``key``.
        positive_index: (N,) integers, the row of ``all_keys`` at which each anchor's own key
            stands; goes with it.

    Returns:
        (N,) in (0, 1); near 1 where the negatives outweigh the positive.

    Raises:
        ValueError: shapes that do not fit, no negatives, or a bad temperature.

    >>> import torch
    >>> anchor_hardness(torch.eye(4), torch.eye(4), tau=0.5)
    tensor([0.2888, 0.2888, 0.2888, 0.2888])
    """
    check_temperature(tau=tau)
    positive, similarities = split_negatives(query, key, negatives, all_keys, positive_index)
    return torch.sigmoid(anchor_logit(positive, similarities, tau)).to(similarities.dtype)


@full_precision
def negative_penalty(
    query: Tensor, key: Tensor, negatives: Tensor | None = None, tau: float = 0.1
) -> Tensor:
    r"""The weights :math:`\hat p_j = p_j / \sum_j p_j` of the negatives in the vector component.

    Eq. 4-6 of Zhang et al., CVPR 2022 (https://arxiv.org/abs/2203.17248).

    Args:
        query: anchors, (N, D), L2-normalised.
        key: positives, (N, D), L2-normalised.
        negatives: (M, D), L2-normalised; None takes the other rows of ``key``.
        tau: temperature, finite and above 0.

    Returns:
        (N, M), each row summing to 1. With in-batch negatives (N, N), zero on the diagonal.

    Raises:
        ValueError: shapes that do not fit, no negatives, or a bad temperature.

    >>> import torch
    >>> negative_penalty(torch.eye(3), torch.eye(3), tau=0.5)
    tensor([[0.0000, 0.5000, 0.5000],
            [0.5000, 0.0000, 0.5000],
            [0.5000, 0.5000, 0.0000]])
    """
    check_temperature(tau=tau)
    _, similarities = split_negatives(query, key, negatives)
    return torch.softmax(similarities / tau, dim=1)


@full_precision
def relative_penalty(
    query: Tensor, key: Tensor, negatives: Tensor | None = None, tau: float = 0.1
) -> Tensor:
    r"""How the pull is shared among the anchors of a batch: r_+^i = W^i / sum_i W^i (Eq. 8).

    Zhang et al., CVPR 2022 (https://arxiv.org/abs/2203.17248). Computed from log W, so that it
    holds where every W is too small for the number format.

    Args:
        query: anchors, (N, D), L2-normalised.
        key: positives, (N, D), L2-normalised.
        negatives: (M, D), L2-normalised; None takes the other rows of ``key``.
        tau: temperature, finite and above 0.

    Returns:
        (N,), at least 0 and summing to 1.

    Raises:
        ValueError: shapes that do not fit, no negatives, or a bad temperature.

    >>> import torch
    >>> relative_penalty(torch.eye(4), torch.eye(4), tau=0.5)
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    check_temperature(tau=tau)
    positive, similarities = split_negatives(query, key, negatives)
    logit = anchor_logit(positive, similarities, tau)
    return torch.softmax(F.logsigmoid(logit), dim=0).to(similarities.dtype)


def penalty_entropy(penalty: Tensor, normalized: bool = True) -> Tensor:
    """Entropy of a penalty distribution along its last dimension (Fig. 3 of the paper).

    Args:
        penalty: (..., N) of numbers that are at least 0 and sum to 1 along the last dimension, such
            as :func:`relative_penalty` or the rows of :func:`negative_penalty`.
        normalized: divide by log N, so that an even share gives 1; else in nats.

    Returns:
        (...), in [0, 1] if normalized, else in [0, log N].

    Raises:
        ValueError: fewer than two entries to share the penalty among.

    >>> import torch
    >>> penalty_entropy(torch.tensor([0.25, 0.25, 0.25, 0.25]))
    tensor(1.)
    """
    if penalty.ndim < 1 or penalty.shape[-1] < 2:
        raise ValueError(f"penalty must have at least 2 entries, got shape {tuple(penalty.shape)}")
    entropy = torch.special.entr(penalty).sum(dim=-1)
    return entropy / math.log(penalty.shape[-1]) if normalized else entropy
