"""InfoNCE with one temperature against a bank of negatives (Eq. 1)."""

from __future__ import annotations

from torch import Tensor

from simco_methods.losses.kernel import (
    check_temperature,
    contrast,
    full_precision,
    info_nce_from_logit,
)
from simco_methods.losses.logsumexp import contrast_logits


@full_precision
def info_nce_loss(query: Tensor, key: Tensor, negatives: Tensor, tau: float = 0.1) -> Tensor:
    r"""InfoNCE: the mean over anchors of

    .. math:: -\log \frac{\exp(q_i k_{i+} / \tau)}{\exp(q_i k_{i+} / \tau)
              + \sum_j \exp(q_i k_j / \tau)}

    Eq. 1 of Zhang et al., CVPR 2022 (https://arxiv.org/abs/2203.17248); the loss of MoCo.

    Args:
        query: anchors, (N, D), L2-normalised, any floating type (computed in float32 or better).
        key: positives, (N, D), L2-normalised; row i belongs to anchor i.
        negatives: (M, D), L2-normalised, shared by all anchors.
        tau: temperature, finite and above 0.

    Returns:
        Scalar, in nats, at least 0.

    Raises:
        ValueError: shapes that do not fit, no negatives, or a temperature that is not finite and
            above 0.

    >>> import torch
    >>> query = torch.eye(4)
    >>> info_nce_loss(query, query, -query, tau=0.5)
    tensor(0.3537)
    """
    check_temperature(tau=tau)
    pairs = contrast(query, key, negatives)
    (logit,) = contrast_logits(*pairs, (tau,))
    return info_nce_from_logit(logit).mean().to(pairs[0].dtype)
