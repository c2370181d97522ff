"""The two components of InfoNCE's gradient on an anchor, and what is measured on them (Eq. 4-8)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from simco_methods.losses.kernel import check_temperature, contrast, full_precision, wide_type
from simco_methods.losses.logsumexp import contrast_logits

# Entries of a similarity matrix that is summed in float64: 512 x 512.
_SMALL_MATRIX = 2**18


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
    pairs = contrast(query, key, negatives, all_keys, positive_index)
    (logit,) = contrast_logits(*pairs, (tau,))
    return torch.sigmoid(logit).to(pairs[0].dtype)


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
    query, key, bank, _ = contrast(query, key, negatives)
    in_batch = bank is None
    if in_batch:
        # Only differences matter, and of keys that are all alike nothing cancels.
        bank = key - key.detach().mean(dim=0)
    small = len(query) * len(bank) <= _SMALL_MATRIX
    wide = wide_type(query) if small else query.dtype
    similarities = (query.to(wide) @ bank.to(wide).T).to(query.dtype)
    if in_batch:
        own = torch.eye(len(query), dtype=torch.bool, device=query.device)
        similarities = similarities.masked_fill(own, -torch.inf)
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
    pairs = contrast(query, key, negatives)
    (logit,) = contrast_logits(*pairs, (tau,))
    return torch.softmax(F.logsigmoid(logit), dim=0).to(pairs[0].dtype)


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
