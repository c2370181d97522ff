"""InfoNCE with an own dictionary and temperature for each component of its gradient (Eq. 7)."""

from __future__ import annotations

from torch import Tensor

from simco_methods.losses.kernel import (
    check_temperature,
    contrast,
    dual_loss_from_logits,
    full_precision,
)
from simco_methods.losses.logsumexp import contrast_logits


@full_precision
def decoupled_info_nce_loss(
    query: Tensor,
    key: Tensor,
    vector_negatives: Tensor | None,
    scalar_negatives: Tensor | None,
    tau_alpha: float = 0.1,
    tau_beta: float = 0.1,
    *,
    all_keys: Tensor | None = None,
    positive_index: Tensor | None = None,
) -> Tensor:
    r"""InfoNCE whose vector and scalar components see different dictionaries.

    The gradient of InfoNCE on an anchor is :math:`-(W / \tau)(k_+ - \sum_j \hat p_j k_j)` (Eq. 4):
    a scalar W, how hard the anchor is, times a vector, where it is pulled. Here W comes from
    ``scalar_negatives`` at ``tau_beta`` and :math:`\hat p` from ``vector_negatives`` at
    ``tau_alpha`` (Eq. 7 of Zhang et al., CVPR 2022, https://arxiv.org/abs/2203.17248). The value is
    reported in the form of Eq. 9, sg[W_scalar / W_vector] softplus(a_vector): the same gradient,
    and a number that can be compared with the other losses. With one dictionary and temperature for
    both it is InfoNCE (Eq. 1), with the batch for both Eq. 9.

    Args:
        query: anchors, (N, D), L2-normalised, any floating type (computed in float32 or better).
        key: positives, (N, D), L2-normalised; row i belongs to anchor i.
        vector_negatives: (M, D), dictionary of the vector component; None for the other rows of the
            batch, j != i.
        scalar_negatives: (M', D), dictionary of the scalar component, which no gradient reaches;
            None for the other rows of the batch.
        tau_alpha: intra-anchor temperature (vector component), finite and above 0.
        tau_beta: inter-anchor temperature (scalar component), finite and above 0.
        all_keys: (M, D), the keys of all processes, to be the batch in place of ``key``.
        positive_index: (N,) integers, the row of ``all_keys`` at which each anchor's own key
            stands; goes with it.

    Returns:
        Scalar, the mean over anchors, at least 0.

    Raises:
        ValueError: shapes that do not fit, an empty dictionary, a batch of one row as negatives, or
            a temperature that is not finite and above 0.

    >>> import torch
    >>> query = torch.eye(4)
    >>> decoupled_info_nce_loss(query, query, -query, -query[:2], tau_alpha=0.5, tau_beta=0.5)
    tensor(0.2055)
    """
    check_temperature(tau_alpha=tau_alpha, tau_beta=tau_beta)
    batch = {"all_keys": all_keys, "positive_index": positive_index}
    vector = contrast(query, key, vector_negatives, **batch, name="vector_negatives")
    if scalar_negatives is vector_negatives:
        logits = contrast_logits(*vector, (tau_alpha, tau_beta))
    else:
        scalar = contrast(query, key, scalar_negatives, **batch, name="scalar_negatives")
        # Detached like everything of the scalar component: it weighs the gradient, it has none.
        scalar = [tensor if tensor is None else tensor.detach() for tensor in scalar]
        logits = contrast_logits(*vector, (tau_alpha,)) + contrast_logits(*scalar, (tau_beta,))
    return dual_loss_from_logits(*logits).mean().to(vector[0].dtype)
