r"""The one kernel behind every loss of the pack, in its stable form.

For an anchor :math:`q_i` with similarities :math:`s_{i+}` to its positive and :math:`s_{ij}` to its
negatives, everything in the paper is a function of one number an anchor and temperature,

.. math:: a_i(\tau) = \operatorname{logsumexp}_j (s_{ij} / \tau) - s_{i+} / \tau ,

over the negatives only. The anchor hardness is :math:`W_\tau = \sigma(a(\tau))`, InfoNCE is
:math:`\operatorname{softplus}(a(\tau))`. Nothing here divides by :math:`1 - p_+`, which cancels in
float32 as soon as the positive is tight (0.9 % off at tau 0.05, NaN at 0.04).

Source of the equation numbers: Zhang et al., "Dual Temperature Helps Contrastive Learning Without
Many Negative Samples", CVPR 2022, https://arxiv.org/abs/2203.17248.
"""

from __future__ import annotations

import functools
import math
from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor

# Below it softplus(a) / sigmoid(a) is 1 to the last bit of float64, and exp(-a) would overflow.
_LOGIT_FLOOR = -30.0


def l2_normalize(features: Tensor) -> Tensor:
    """Rows of unit length, in float32 or better, safe for rows that are zero.

    ``torch.nn.functional.normalize`` returns NaN for a zero row in float16 (its epsilon rounds to
    zero) and a gradient of 1e12 in float32. Here a zero row stays zero and gets no gradient.

    Args:
        features: (N, D) in any floating type.

    Returns:
        (N, D), float32 for half-precision input, else the input's type.

    >>> l2_normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    features = _at_least_float32(features)
    norm = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    return torch.where(norm > 0, features / torch.where(norm > 0, norm, 1.0), 0.0)


def full_precision(function):
    """Runs ``function`` outside autocast: under it every similarity would be rounded to 16 bits."""

    @functools.wraps(function)
    def wrapper(query: Tensor, *args, **kwargs):
        with torch.autocast(device_type=query.device.type, enabled=False):
            return function(query, *args, **kwargs)

    return wrapper


def check_temperature(**temperatures: float) -> None:
    """Raises ``ValueError`` unless every temperature is a finite number above 0."""
    for name, value in temperatures.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {value!r}")


def check_pairs(query: Tensor, key: Tensor) -> None:
    """Raises ``ValueError`` unless query and key are two (N, D) tensors of one shape, N >= 1."""
    if query.ndim != 2 or query.shape != key.shape or query.shape[0] < 1:
        raise ValueError(
            "query and key must be two tensors of one shape (N, D), N >= 1, got "
            f"{tuple(query.shape)} and {tuple(key.shape)}"
        )


def check_bank(name: str, bank: Tensor, query: Tensor) -> None:
    """Raises ``ValueError`` unless ``bank`` is (M, D) with M >= 1 and the query's D."""
    if bank.ndim != 2 or bank.shape[0] < 1 or bank.shape[1] != query.shape[1]:
        raise ValueError(
            f"{name} must have the shape (M, {query.shape[1]}) with M >= 1, got {tuple(bank.shape)}"
        )


def common_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in one floating type, float32 at least."""
    dtype = functools.reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)
    return tuple(t.to(dtype) for t in tensors)


def bank_similarities(query: Tensor, key: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
    """Similarities of each anchor to its own key, (N,), and to every row of ``bank``, (N, M)."""
    return (query * key).sum(dim=-1), query @ bank.T


def in_batch_similarities(similarity: Tensor, positive_index: Tensor) -> tuple[Tensor, Tensor]:
    """Splits a similarity matrix into positives and negatives j != i.

    Args:
        similarity: (N, M) of every anchor to every key.
        positive_index: (N,) column at which each anchor's positive stands.

    Returns:
        The positives (N,) and the negatives (N, M), -inf where the positive stood. Both come from
        one matrix, so that identical rows cancel exactly.
    """
    column = positive_index.unsqueeze(1)
    positive = similarity.gather(1, column).squeeze(1)
    return positive, similarity.scatter(1, column, -torch.inf)


def split_negatives(query: Tensor, key: Tensor, negatives: Tensor | None) -> tuple[Tensor, Tensor]:
    """Positives (N,) and negatives (N, M) against a bank, or against the batch if it is None."""
    check_pairs(query, key)
    if negatives is not None:
        check_bank("negatives", negatives, query)
        return bank_similarities(*common_precision(query, key, negatives))
    if query.shape[0] < 2:
        raise ValueError("in-batch negatives need at least 2 rows, got 1")
    query, key = common_precision(query, key)
    return in_batch_similarities(query @ key.T, torch.arange(len(query), device=query.device))


def anchor_logit(positive: Tensor, negatives: Tensor, tau: float) -> Tensor:
    """a(tau): its sigmoid is the anchor hardness, its softplus the InfoNCE loss.

    Args:
        positive: (N,) similarities to the positives.
        negatives: (N, M) similarities to the negatives; -inf leaves an entry out.
        tau: temperature, above 0.

    Returns:
        (N,).
    """
    return torch.logsumexp((negatives - positive.unsqueeze(1)) / tau, dim=1)


def info_nce_from_logit(logit: Tensor) -> Tensor:
    """softplus(a) = -log p_+, exact to the last bits (F.softplus cuts off at 20), (N,)."""
    return -F.logsigmoid(-logit)


def dual_loss_from_logits(vector_logit: Tensor, scalar_logit: Tensor) -> Tensor:
    r"""sg[W_scalar / W_vector] * softplus(a_vector) without the division (Eq. 7 and 9).

    Args:
        vector_logit: (N,) a(tau_alpha) over the vector component's negatives.
        scalar_logit: (N,) a(tau_beta) over the scalar component's negatives.

    Returns:
        (N,). The gradient on ``vector_logit`` is W_scalar, on ``scalar_logit`` it is zero.
    """
    # Stop-gradient: the scalar component says how hard an anchor pulls, it is not trained (Eq. 9).
    hardness = torch.sigmoid(scalar_logit.detach())
    # softplus(a) / sigmoid(a), which tends to 1 as a tends to -inf.
    floored = vector_logit.detach().clamp(min=_LOGIT_FLOOR)
    ratio = info_nce_from_logit(floored) * (1 + torch.exp(-floored))
    # The value comes from the first term, the gradient from the second, whose value is zero.
    return hardness * ratio + hardness * (vector_logit - vector_logit.detach())


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
