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
import inspect
import math
from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor

# Below it softplus(a) / sigmoid(a) is 1 to the last bit of float64, and exp(-a) would overflow.
_LOGIT_FLOOR = -30.0
# Entries of a similarity matrix that is summed in float64: 512 x 512.
_SMALL_MATRIX = 2**18


def l2_normalize(features: Tensor) -> Tensor:
    """Rows of unit length, in float32 or better, safe for rows that are zero.

    ``torch.nn.functional.normalize`` returns NaN for a zero row in float16 (its epsilon rounds to
    zero) and a gradient of 1e12 in float32. Here a zero row stays zero and gets no gradient; a row
    with a NaN or an infinity becomes NaN, so that the loss shows it.

    Args:
        features: (..., D) in any floating type.

    Returns:
        (..., D), float32 for half-precision input, else the input's type.

    >>> l2_normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    features = _at_least_float32(features)
    # Relative to the largest entry, a constant to autograd: squares neither over- nor underflow.
    largest = features.detach().abs().amax(dim=-1, keepdim=True)
    features = features / torch.where(largest == 0, 1.0, largest)
    norm = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    zero = norm == 0
    return torch.where(zero, 0.0, features / torch.where(zero, 1.0, norm))


def full_precision(function):
    """Runs ``function`` outside autocast: under it every similarity would be rounded to 16 bits."""

    first = next(iter(inspect.signature(function).parameters))

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        device = (args[0] if args else kwargs[first]).device
        with torch.autocast(device_type=device.type, enabled=False):
            return function(*args, **kwargs)

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
    """Similarities of each anchor to its own key, (N,) in float64 where the device has it, and to
    every row of ``bank``, (N, M).

    float32 sums a dot product to about 1e-7, which is 1e-5 in the loss at tau 0.01. A small matrix
    is therefore summed in float64, at no cost that can be measured; a large one is not.
    """
    wide = _wide_type(query)
    wide_query = query.to(wide)
    positive = (wide_query * key.to(wide)).sum(dim=-1)
    if len(query) * len(bank) > _SMALL_MATRIX:
        return positive, query @ bank.T
    return positive, (wide_query @ bank.to(wide).T).to(query.dtype)


def in_batch_similarities(
    query: Tensor, key: Tensor, bank: Tensor, positive_index: Tensor
) -> tuple[Tensor, Tensor]:
    """Similarities up to one number an anchor, with the batch as negatives, j != i.

    Only differences of an anchor's similarities matter, so the keys are taken relative to their
    mean: where they are all alike, as in an untrained encoder, nothing cancels, and identical rows
    give exactly log N.

    Args:
        query: (N, D) anchors.
        key: (N, D) positives.
        bank: (M, D) keys of the batch, of all processes.
        positive_index: (N,) row of ``bank`` at which each anchor's positive stands.

    Returns:
        The positives (N,) and the negatives (N, M), -inf where the positive stands.
    """
    center = bank.detach().mean(dim=0, keepdim=True)
    positive, similarity = bank_similarities(query, key - center, bank - center)
    return positive, similarity.scatter(1, positive_index.unsqueeze(1), -torch.inf)


def split_negatives(
    query: Tensor,
    key: Tensor,
    negatives: Tensor | None,
    all_keys: Tensor | None = None,
    positive_index: Tensor | None = None,
    name: str = "negatives",
) -> tuple[Tensor, Tensor]:
    """Positives (N,) and negatives (N, M) against a bank, or against the batch if it is None.

    Args:
        query: (N, D) anchors.
        key: (N, D) positives.
        negatives: (M, D), or None for the other rows of the batch.
        all_keys: (M, D), the batch of all processes; None for ``key``.
        positive_index: (N,) the rows of ``all_keys`` at which the positives stand; goes with it.
        name: what the bank is called in an error.

    Raises:
        ValueError: shapes that do not fit, or nothing to contrast with.
    """
    check_pairs(query, key)
    if negatives is not None:
        check_bank(name, negatives, query)
        return bank_similarities(*common_precision(query, key, negatives))
    if (all_keys is None) != (positive_index is None):
        raise ValueError("all_keys and positive_index go together")
    if all_keys is None:
        all_keys, positive_index = key, torch.arange(len(query), device=query.device)
    check_bank("all_keys", all_keys, query)
    if len(all_keys) < 2:
        raise ValueError(
            f"in-batch negatives need at least 2 rows, got {len(all_keys)}: "
            "there is nothing to contrast with"
        )
    return in_batch_similarities(*common_precision(query, key, all_keys), positive_index)


def anchor_logit(positive: Tensor, negatives: Tensor, tau: float) -> Tensor:
    """a(tau): its sigmoid is the anchor hardness, its softplus the InfoNCE loss.

    Args:
        positive: (N,) similarities to the positives.
        negatives: (N, M) similarities to the negatives; -inf leaves an entry out.
        tau: temperature, above 0.

    Returns:
        (N,), in float64 where the device has it: a similarity of 1 known to 6e-8 is an a(0.01)
        known to 6e-6, so nothing more may be lost. It is N numbers; the matrix stays as it is.
    """
    wide = _wide_type(negatives)
    # Constant to autograd: the two places where it stands cancel.
    largest = negatives.detach().amax(dim=1)
    spread = torch.logsumexp((negatives - largest.unsqueeze(1)) / tau, dim=1)
    return spread.to(wide) + (largest.to(wide) - positive.to(wide)) / tau


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


def _wide_type(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
