"""The loss of a training step, written out for every method in the textbook's form."""

import copy

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import VARIANTS, batch, build
from tests.losses import oracle


def simco(model, views, targets):
    z1, z2 = (model(view)["z"] for view in views)
    return (oracle.dual_in_batch(z1, z2, 0.1, 1.0) + oracle.dual_in_batch(z2, z1, 0.1, 1.0)) / 2


def sides(model, views):
    """(query, key, queue) of view 1 against view 2, and of the reverse if symmetric."""
    pairs = [views, views[::-1]] if model.cfg.method_kwargs.symmetric else [views]
    for side, (query, key) in enumerate(pairs):
        queue = model.queues[side].keys.double() if hasattr(model, "queues") else None
        yield model(query)["z"], model.momentum_forward(key)["z"], queue


def mean(losses):
    losses = [loss.mean() for loss in losses]
    return sum(losses) / len(losses)


def simmoco(model, views, targets):
    return mean(oracle.dual_in_batch(q, k, 0.1, 1.0) for q, k, _ in sides(model, views))


def mocov2(model, views, targets):
    return mean(oracle.info_nce(q, k, queue, 0.1) for q, k, queue in sides(model, views))


def weight(prediction, target):
    return oracle.in_batch(oracle.weight, prediction, target, 0.1).detach()


def simsiam_hardness(model, views, targets):
    """Eq. 10 times sg[W], with a stop-gradient on the other view's embedding."""
    z = [F.normalize(model.projector(model(view)["feats"])) for view in views]
    p = [F.normalize(model.predictor(model.projector(model(view)["feats"]))) for view in views]
    return mean(
        -weight(p[i], z[1 - i].detach()) * (p[i] * z[1 - i].detach()).sum(dim=1) for i in (0, 1)
    )


def byol_hardness(model, views, targets):
    """Its value is solo-learn's: the sum over the two views of the squared distances."""
    k = [model.momentum_forward(view)["z"] for view in views]
    p = [F.normalize(model.predictor(model.projector(model(view)["feats"]))) for view in views]
    return sum(
        (weight(p[i], k[1 - i]) * ((p[i] - k[1 - i]) ** 2).sum(dim=1)).mean() for i in (0, 1)
    )


def supervised_hardness(model, views, targets):
    return mean(F.cross_entropy(model.head(model(view)["feats"]), targets) for view in views)


LOSSES = {
    function.__name__: function
    for function in (simco, simmoco, mocov2, simsiam_hardness, byol_hardness, supervised_hardness)
}
LOSSES["decoupled_moco"] = mocov2  # as it stands


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_value_and_gradient(name, symmetric):
    model = build(name, symmetric).double()
    _, views, targets = batch()
    views = [view.double() for view in views]
    other = copy.deepcopy(model)
    total = model.training_step([None, views, targets], 0)
    total.backward()

    both = name in ("simco", "simsiam_hardness", "byol_hardness", "supervised_hardness")
    forwarded = views if both or symmetric else views[:1]
    probe = mean(F.cross_entropy(other(view)["logits"], targets) for view in forwarded)
    expected = LOSSES[name](other, views, targets) + probe
    expected.backward()
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-6)
    for (key, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None), key
        if one.grad is not None:
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-5, atol=1e-6, msg=key)
