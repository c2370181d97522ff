"""Cross entropy and its anchor weights: as they are, softened, equal."""

import pytest
import torch
import torch.nn.functional as F

from simco_methods.losses import class_hardness, weighted_cross_entropy_loss


def data(n=12, classes=5, scale=3.0):
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(0, classes, (n,), generator=generator)


def gradient(function, logits):
    logits = logits.clone().requires_grad_()
    value = function(logits)
    (grad,) = torch.autograd.grad(value, logits)
    return value.detach(), grad


@pytest.mark.parametrize("tau", [0.2, 1.0, 3.0])
def test_with_its_natural_weight_it_is_cross_entropy(tau):
    logits, targets = data()
    targets[3] = -1
    value, grad = gradient(
        lambda x: weighted_cross_entropy_loss(x, targets, tau_alpha=tau, tau_beta=tau), logits
    )
    expected, expected_grad = gradient(
        lambda x: F.cross_entropy(x / tau, targets, ignore_index=-1), logits
    )
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grad, expected_grad, rtol=1e-12, atol=1e-14)


def pulls(logits, targets, **options):
    """Size of the gradient on each true logit, times N: the anchor's weight."""
    _, grad = gradient(lambda x: weighted_cross_entropy_loss(x, targets, **options), logits)
    return -grad.gather(1, targets.unsqueeze(1)).squeeze(1) * len(targets)


def test_the_weight_is_that_of_the_second_temperature():
    logits, targets = data()
    for tau in (0.5, 4.0, 100.0):
        weight = 1 - torch.softmax(logits / tau, dim=1).gather(1, targets[:, None]).squeeze(1)
        torch.testing.assert_close(pulls(logits, targets, tau_beta=tau), weight)
        torch.testing.assert_close(class_hardness(logits, targets, tau), weight)
    # The shares of the other classes stay those of tau_alpha.
    grads = [
        gradient(lambda x, t=tau: weighted_cross_entropy_loss(x, targets, tau_beta=t), logits)[1]
        for tau in (1.0, 4.0)
    ]
    shares = [g.scatter(1, targets[:, None], 0.0) for g in grads]
    shares = [share / share.sum(dim=1, keepdim=True) for share in shares]
    torch.testing.assert_close(*shares)


@pytest.mark.parametrize("tau_alpha, tau_beta", [(1.0, 4.0), (0.5, 0.2), (3.0, 100.0)])
@pytest.mark.parametrize("equal", [False, True])
def test_agrees_with_the_textbook(tau_alpha, tau_beta, equal):
    """The ratio of the weights, divided out, times the cross entropy."""
    logits, targets = data()

    def hardness(x, tau):
        return 1 - torch.softmax(x / tau, dim=1).gather(1, targets[:, None]).squeeze(1)

    def textbook(x):
        weight = hardness(x, tau_beta).mean() if equal else hardness(x, tau_beta)
        terms = F.cross_entropy(x / tau_alpha, targets, reduction="none")
        return ((weight / hardness(x, tau_alpha)).detach() * terms).mean()

    options = {"tau_alpha": tau_alpha, "tau_beta": tau_beta, "equal_weight": equal}
    ours = gradient(lambda x: weighted_cross_entropy_loss(x, targets, **options), logits)
    torch.testing.assert_close(ours, gradient(textbook, logits), rtol=1e-8, atol=1e-11)


def test_equal_weights_pull_alike_and_as_much_in_all():
    logits, targets = data()
    natural, equal = pulls(logits, targets), pulls(logits, targets, equal_weight=True)
    assert natural.std() > 0.1
    torch.testing.assert_close(equal, natural.mean().expand_as(equal))
    given = pulls(logits, targets, equal_weight=True, mean_hardness=torch.tensor(0.25))
    torch.testing.assert_close(given, torch.full_like(given, 0.25))


def test_gradcheck():
    logits, targets = data()
    assert torch.autograd.gradcheck(
        lambda x: weighted_cross_entropy_loss(x, targets, tau_alpha=2.0, tau_beta=2.0),
        logits.requires_grad_(),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_very_easy_and_very_hard_anchors_stay_finite(dtype):
    logits = torch.tensor([[200.0, 0.0], [-200.0, 0.0]], dtype=dtype)
    for equal in (False, True):
        value, grad = gradient(
            lambda x, e=equal: weighted_cross_entropy_loss(
                x, torch.tensor([0, 0]), tau_beta=5.0, equal_weight=e
            ),
            logits,
        )
        assert torch.isfinite(value) and torch.isfinite(grad).all() and value.dtype == torch.float32


@pytest.mark.parametrize("equal", [False, True])
def test_rows_without_a_label_are_as_if_they_were_not_there(equal):
    logits, targets = data()
    labelled = torch.arange(len(targets)) % 3 != 1
    options = {"tau_beta": 4.0, "equal_weight": equal}
    value, grad = gradient(
        lambda x: weighted_cross_entropy_loss(x, targets.where(labelled, -1), **options), logits
    )
    expected, expected_grad = gradient(
        lambda x: weighted_cross_entropy_loss(x, targets[labelled], **options), logits[labelled]
    )
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(grad[labelled], expected_grad)
    assert not grad[~labelled].any()


def test_nothing_labelled_is_zero():
    logits, targets = data()
    value, grad = gradient(
        lambda x: weighted_cross_entropy_loss(x, torch.full_like(targets, -1)), logits
    )
    assert value == 0 and not grad.any()


def test_bad_input_is_named():
    logits, targets = data()
    for arguments, options, message in [
        ((logits[:, :1], targets), {}, "C >= 2"),
        ((logits, targets[:3]), {}, r"got \(12, 5\) and \(3,\)"),
        ((logits, targets + 5), {}, "targets must be classes from 0 to 4"),
        ((logits, targets - 7), {}, "or -1 for none"),
        ((logits, targets), {"tau_alpha": 0}, "tau_alpha must be a finite number above 0, got 0"),
        ((logits, targets), {"tau_beta": -1}, "tau_beta must be a finite number above 0, got -1"),
        ((logits, targets), {"mean_hardness": logits.sum()}, "goes with equal_weight"),
    ]:
        with pytest.raises(ValueError, match=message):
            weighted_cross_entropy_loss(*arguments, **options)
