"""Cross entropy whose anchors can be weighed otherwise than by 1 - p_y."""

from __future__ import annotations

import torch
from torch import Tensor

from simco_methods.losses.kernel import (
    anchor_logit,
    check_temperature,
    dual_loss_from_logits,
    full_precision,
)


@full_precision
def weighted_cross_entropy_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    tau_alpha: float = 1.0,
    tau_beta: float = 1.0,
    equal_weight: bool = False,
    mean_hardness: Tensor | None = None,
) -> Tensor:
    r"""Cross entropy at ``tau_alpha`` whose anchors are weighed as ``tau_beta`` would weigh them.

    Cross entropy is InfoNCE with the other classes as negatives: its gradient on an anchor's logits
    is a scalar :math:`W = 1 - p_y`, how hard the anchor is, times a vector that shares W among the
    other classes. With :math:`a(\tau)` the logsumexp of the other classes' logits / tau less the
    true class's, and :math:`W_\tau = \sigma(a(\tau))`, the loss of an anchor is

    .. math:: \operatorname{sg}\!\left[W_{\tau_\beta} / W_{\tau_\alpha}\right]
              \cdot \operatorname{softplus}(a(\tau_\alpha)) ,

    the form of Eq. 9 of Zhang et al., CVPR 2022 (https://arxiv.org/abs/2203.17248). With equal
    temperatures it is the cross entropy of logits / tau. With ``equal_weight`` the mean of
    :math:`W_{\tau_\beta}` over the anchors stands in place of each one's: as much is pulled in all,
    and every anchor has the same relative penalty r+ (Eq. 8), 1/N.

    Args:
        logits: (N, C), C >= 2, any floating type (computed in float32 or better).
        targets: (N,) class numbers from 0 to C - 1; -1 leaves a row out.
        tau_alpha: temperature of the loss and of the shares of the other classes, finite and above
            0.
        tau_beta: temperature of the anchors' weights, finite and above 0.
        equal_weight: weigh all anchors by the mean weight.
        mean_hardness: scalar in [0, 1], to be that mean, such as the one over the anchors of all
            processes; None for the mean over these. Goes with ``equal_weight``.

    Returns:
        Scalar, the mean over the labelled rows, at least 0; zero, with zero gradient, if there is
        none.

    Raises:
        ValueError: shapes that do not fit, a class that does not exist, a temperature that is not
            finite and above 0, or a ``mean_hardness`` without ``equal_weight``.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> weighted_cross_entropy_loss(logits, torch.tensor([0, 0]))
    tensor(0.8955)
    >>> weighted_cross_entropy_loss(logits, torch.tensor([0, 0]), equal_weight=True)
    tensor(0.7741)
    """
    check_temperature(tau_alpha=tau_alpha, tau_beta=tau_beta)
    if mean_hardness is not None and not equal_weight:
        raise ValueError("mean_hardness goes with equal_weight=True, got equal_weight=False")
    true, others = _split_classes(logits, targets)
    labelled = targets != -1
    count = labelled.sum().clamp(min=1)
    scalar = anchor_logit(true.detach(), others.detach(), tau_beta)
    if equal_weight:
        if mean_hardness is None:
            mean_hardness = torch.where(labelled, torch.sigmoid(scalar), 0.0).sum() / count
        scalar = torch.logit(mean_hardness.detach().to(scalar)).expand_as(scalar)
    loss = dual_loss_from_logits(anchor_logit(true, others, tau_alpha), scalar)
    return (torch.where(labelled, loss, 0.0).sum() / count).to(others.dtype)


@full_precision
def class_hardness(logits: Tensor, targets: Tensor, tau: float = 1.0) -> Tensor:
    r"""The anchor weight W = 1 - p_y of cross entropy at a temperature.

    Args:
        logits: (N, C), C >= 2.
        targets: (N,) class numbers from 0 to C - 1, or -1.
        tau: temperature, finite and above 0.

    Returns:
        (N,) in (0, 1), 0 where the target is -1; in float64 where the device has it, so that easy
        anchors keep their share.

    Raises:
        ValueError: as of :func:`weighted_cross_entropy_loss`.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> class_hardness(logits, torch.tensor([0, 1])).float()
    tensor([0.2130, 0.6667])
    """
    check_temperature(tau=tau)
    hardness = torch.sigmoid(anchor_logit(*_split_classes(logits, targets), tau))
    return torch.where(targets != -1, hardness, 0.0)


def _split_classes(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The true class's logit (N,), and (N, C) with -inf in its place."""
    if logits.ndim != 2 or logits.shape[1] < 2 or targets.shape != logits.shape[:1]:
        raise ValueError(
            "logits must have the shape (N, C) with C >= 2 and targets (N,), got "
            f"{tuple(logits.shape)} and {tuple(targets.shape)}"
        )
    # On an accelerator to look would be to wait for it; there torch stops with an error of its own.
    if targets.device.type == "cpu" and targets.numel():
        for value in (int(targets.min()), int(targets.max())):
            if not -1 <= value < logits.shape[1]:
                raise ValueError(
                    f"targets must be classes from 0 to {logits.shape[1] - 1}, or -1 for none, "
                    f"got {value}"
                )
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    index = targets.clamp(min=0).unsqueeze(1)
    return logits.gather(1, index).squeeze(1), logits.scatter(1, index, -torch.inf)
