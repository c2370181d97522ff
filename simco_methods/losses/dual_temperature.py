"""The dual-temperature loss: in-batch negatives, one temperature a component (Eq. 9)."""

from __future__ import annotations

from torch import Tensor

from simco_methods.losses.decoupled_info_nce import decoupled_info_nce_loss
from simco_methods.losses.kernel import (
    check_temperature,
    contrast,
    dual_loss_from_logits,
    full_precision,
)
from simco_methods.losses.logsumexp import contrast_logits


@full_precision
def dual_temperature_loss(
    query: Tensor,
    key: Tensor,
    *,
    tau_alpha: float = 0.1,
    tau_beta: float = 1.0,
    symmetric: bool = False,
    all_keys: Tensor | None = None,
    all_queries: Tensor | None = None,
    positive_index: Tensor | None = None,
) -> Tensor:
    r"""InfoNCE at ``tau_alpha`` whose anchors are weighed as ``tau_beta`` would weigh them:

    .. math:: L_i = \operatorname{sg}\!\left[\frac{W_i(\tau_\beta)}{W_i(\tau_\alpha)}\right]
              \cdot (-\log p_{i+}(\tau_\alpha)), \qquad W_i(\tau) = 1 - p_{i+}(\tau)

    with the other rows of the batch, j != i, as negatives (Eq. 9 of Zhang et al., CVPR 2022,
    https://arxiv.org/abs/2203.17248). The authors' code writes tau_beta as dt_m * tau_alpha.
    With tau_beta = tau_alpha it is InfoNCE.

    Args:
        query: anchors, (N, D), L2-normalised, any floating type (computed in float32 or better).
        key: positives, (N, D), L2-normalised; row i belongs to anchor i, the other rows are its
            negatives. Detach it to keep gradient from the keys (a momentum encoder's have none).
        tau_alpha: intra-anchor temperature (vector component), finite and above 0.
        tau_beta: inter-anchor temperature (scalar component), finite and above 0.
        symmetric: the mean of the loss of query against key and of key against query.
        all_keys: (M, D), the keys of all processes, to be used in place of ``key`` as the bank.
        all_queries: (M, D), the queries of all processes; needed with ``all_keys`` if symmetric.
        positive_index: (N,) integers, the row of the gathered tensors at which each anchor's own
            row stands; needed with ``all_keys``.

    Returns:
        Scalar, the mean over anchors, at least 0. For N identical rows it is log N at equal
        temperatures.

    Raises:
        ValueError: shapes that do not fit, fewer than two rows, a temperature that is not finite
            and above 0, or gathered tensors of which one is missing.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> query, key = torch.nn.functional.normalize(torch.randn(2, 8, 16), dim=-1)
    >>> dual_temperature_loss(query, key, tau_alpha=0.1, tau_beta=1.0)
    tensor(3.0655)
    """
    gathered = all_keys is not None
    if gathered != (positive_index is not None) or (gathered and symmetric) != (
        all_queries is not None
    ):
        raise ValueError(
            "all_keys and positive_index go together, and all_queries with them if symmetric"
        )
    if symmetric and not gathered:
        # The two sides' similarities are one matrix, seen by rows and by columns.
        check_temperature(tau_alpha=tau_alpha, tau_beta=tau_beta)
        pairs = contrast(query, key, None)
        logits = contrast_logits(*pairs, (tau_alpha, tau_beta), both_sides=True)
        return dual_loss_from_logits(*logits).mean().to(pairs[0].dtype)
    sides = [(query, key, all_keys)]
    if symmetric:
        sides.append((key, query, all_queries))
    losses = [
        decoupled_info_nce_loss(
            *pair, None, None, tau_alpha, tau_beta, all_keys=bank, positive_index=positive_index
        )
        for *pair, bank in sides
    ]
    return sum(losses) / len(losses)
