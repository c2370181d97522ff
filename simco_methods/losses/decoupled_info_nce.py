"""InfoNCE with an own dictionary and temperature for each component of its gradient (Eq. 7)."""

from __future__ import annotations

from torch import Tensor

from simco_methods.losses.kernel import (
    anchor_logit,
    bank_similarities,
    check_bank,
    check_pairs,
    check_temperature,
    common_precision,
    dual_loss_from_logits,
    full_precision,
)


@full_precision
def decoupled_info_nce_loss(
    query: Tensor,
    key: Tensor,
    vector_negatives: Tensor,
    scalar_negatives: Tensor,
    tau_alpha: float = 0.1,
    tau_beta: float = 0.1,
) -> Tensor:
    r"""InfoNCE whose vector and scalar components see different dictionaries.

    The gradient of InfoNCE on an anchor is :math:`-(W / \tau)(k_+ - \sum_j \hat p_j k_j)` (Eq. 4):
    a scalar W, how hard the anchor is, times a vector, where it is pulled. Here W comes from
    ``scalar_negatives`` at ``tau_beta`` and :math:`\hat p` from ``vector_negatives`` at
    ``tau_alpha`` (Eq. 7 of Zhang et al., CVPR 2022, https://arxiv.org/abs/2203.17248). The value is
    reported in the form of Eq. 9, sg[W_scalar / W_vector] softplus(a_vector): the same gradient,
    and a number that can be compared with the other losses.

    Args:
        query: anchors, (N, D), L2-normalised, any floating type (computed in float32 or better).
        key: positives, (N, D), L2-normalised; row i belongs to anchor i.
        vector_negatives: (M, D), dictionary of the vector component.
        scalar_negatives: (M', D), dictionary of the scalar component; no gradient reaches it.
        tau_alpha: intra-anchor temperature (vector component), finite and above 0.
        tau_beta: inter-anchor temperature (scalar component), finite and above 0.

    Returns:
        Scalar, the mean over anchors, at least 0.

    Raises:
        ValueError: shapes that do not fit, an empty dictionary, or a temperature that is not finite
            and above 0.

    >>> import torch
    >>> query = torch.eye(4)
    >>> decoupled_info_nce_loss(query, query, -query, -query[:2], tau_alpha=0.5, tau_beta=0.5)
    tensor(0.2055)
    """
    check_temperature(tau_alpha=tau_alpha, tau_beta=tau_beta)
    check_pairs(query, key)
    check_bank("vector_negatives", vector_negatives, query)
    check_bank("scalar_negatives", scalar_negatives, query)
    query, key, vector_negatives, scalar_negatives = common_precision(
        query, key, vector_negatives, scalar_negatives
    )
    positive, vector = bank_similarities(query, key, vector_negatives)
    # Detached like everything of the scalar component: it weighs the gradient, it has none.
    scalar = query.detach() @ scalar_negatives.detach().T
    loss = dual_loss_from_logits(
        anchor_logit(positive, vector, tau_alpha),
        anchor_logit(positive.detach(), scalar, tau_beta),
    )
    return loss.mean().to(query.dtype)
