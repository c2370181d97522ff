r"""The one kernel behind every loss of the pack, in its stable form.

For an anchor :math:`q_i` with similarities :math:`s_{i+}` to its positive and :math:`s_{ij}` to its
negatives, everything in the paper is a function of one number an anchor and temperature,

.. math:: a_i(\tau) = \operatorname{logsumexp}_j (s_{ij} / \tau) - s_{i+} / \tau ,

over the negatives only. The anchor hardness is :math:`W_\tau = \sigma(a(\tau))`, InfoNCE is
:math:`\operatorname{softplus}(a(\tau))`. Nothing here divides by :math:`1 - p_+`, which cancels in
float32 as soon as the positive is tight (0.9 % off at tau 0.05, NaN at 0.04). Of given logits
:func:`anchor_logit` computes it; of embeddings, tile by tile above a size and without ever holding
all similarities, :func:`~simco_methods.losses.logsumexp.contrast_logits`.

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


def wide_type(tensor: Tensor) -> torch.dtype:
    """float64 where the tensor's device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def common_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in one floating type, float32 at least."""
    dtype = functools.reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)
    return tuple(t.to(dtype) for t in tensors)


def contrast(
    query: Tensor,
    key: Tensor,
    negatives: Tensor | None,
    all_keys: Tensor | None = None,
    positive_index: Tensor | None = None,
    name: str = "negatives",
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """What :func:`~simco_methods.losses.logsumexp.contrast_logits` takes, checked and in one type.

    Args:
        query: (N, D) anchors.
        key: (N, D) positives.
        negatives: (M, D), or None for the other rows of the batch.
        all_keys: (M, D), the batch of all processes; None for ``key``.
        positive_index: (N,) the rows of ``all_keys`` at which the positives stand; goes with it.
        name: what the bank is called in an error.

    Returns:
        Query, key, the bank or None for ``key``, and where in the bank the positives stand or None.

    Raises:
        ValueError: shapes that do not fit, or nothing to contrast with.
    """
    check_pairs(query, key)
    if negatives is not None:
        check_bank(name, negatives, query)
        return *common_precision(query, key, negatives), None
    if (all_keys is None) != (positive_index is None):
        raise ValueError("all_keys and positive_index go together")
    batch = key if all_keys is None else all_keys
    check_bank("all_keys", batch, query)
    if len(batch) < 2:
        raise ValueError(
            f"in-batch negatives need at least 2 rows, got {len(batch)}: "
            "there is nothing to contrast with"
        )
    if all_keys is None:
        return *common_precision(query, key), None, None
    # torch's own error for a row that does not exist, without waiting for an accelerator.
    all_keys[:, 0].detach().gather(0, positive_index)
    return *common_precision(query, key, all_keys), positive_index


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
    wide = wide_type(negatives)
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


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
