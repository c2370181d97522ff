"""The weight of SimSiam's and BYOL's anchors: a constant W on each, nothing else changed."""

import pytest
import torch

from simco_methods.losses import anchor_hardness, l2_normalize
from tests.helpers import build

NAMES = ("simsiam_hardness", "byol_hardness")


def pulls(name, prediction, target, **settings):
    """Gradients on the predictions and on the targets of a side's loss."""
    model = build(name, **{f"method_kwargs__{key}": value for key, value in settings.items()})
    leaves = [rows.clone().requires_grad_() for rows in (prediction, target)]
    return torch.autograd.grad(model._side(*leaves), leaves)


@pytest.mark.parametrize("tau", [0.05, 0.1, 2.0])
@pytest.mark.parametrize("name", NAMES)
def test_each_anchor_is_pulled_w_times_as_hard(name, tau):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 12, 8, generator=generator, dtype=torch.float64)
    prediction = l2_normalize(rows[0])
    target = l2_normalize(prediction + 0.6 * rows[1])
    weight = anchor_hardness(prediction, target, tau=tau).unsqueeze(1)
    assert weight.max() > 1.02 * weight.min()
    plain = pulls(name, prediction, target, weighted=False)
    weighted = pulls(name, prediction, target, weighted=True, tau_beta=tau)
    for one, other in zip(weighted, plain, strict=True):
        assert (other.norm(dim=1) > 1e-3).all()
        torch.testing.assert_close(one, weight * other, rtol=1e-10, atol=1e-14)
