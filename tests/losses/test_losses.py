"""Identities between the equations, float64 oracles, hard inputs and bad ones."""

import doctest
import importlib
import math
import pkgutil

import pytest
import torch

import simco_methods.losses as losses
from simco_methods.losses import (
    anchor_hardness,
    decoupled_info_nce_loss,
    dual_temperature_loss,
    info_nce_loss,
    l2_normalize,
    negative_penalty,
    penalty_entropy,
    relative_penalty,
)
from tests.losses import oracle

TAUS = [0.01, 0.02, 0.04, 0.07, 0.1, 0.2, 0.5, 1.0, 2.0]


def unit(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return l2_normalize(torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)


def tight_pairs(n=256, d=128, noise=0.3, seed=0):
    """Positives near their anchors, as in a trained encoder."""
    query = unit(n, d, seed=seed)
    return query, l2_normalize(query + noise * unit(n, d, seed=seed + 1))


def gradients(function, *tensors):
    leaves = [t.clone().requires_grad_() for t in tensors]
    value = function(*leaves)
    value.backward()
    return value.detach(), *(leaf.grad for leaf in leaves)


def relative_error(actual, expected):
    scale = expected.abs().max()
    return ((actual.double() - expected).abs().max() / scale).item() if scale else 0.0


# ---- identities ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.05, 0.1, 1.0])
def test_eq7_with_one_dictionary_is_eq1(tau):
    query, key, bank = unit(16, 8), unit(16, 8, seed=1), unit(40, 8, seed=2)
    value, grad = gradients(lambda q: info_nce_loss(q, key, bank, tau), query)
    value7, grad7 = gradients(
        lambda q: decoupled_info_nce_loss(q, key, bank, bank, tau, tau), query
    )
    torch.testing.assert_close(grad7, grad, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(value7, value, rtol=1e-12, atol=1e-14)


def test_gradient_is_scalar_times_vector():
    """Eq. 4: -dL/dq = (W / tau)(k_+ - sum_j p_j k_j), for Eq. 7 with W from its own dictionary."""
    query, key = unit(16, 8), unit(16, 8, seed=1)
    vector, scalar = unit(40, 8, seed=2), unit(7, 8, seed=3)
    _, grad = gradients(lambda q: decoupled_info_nce_loss(q, key, vector, scalar, 0.1, 0.7), query)
    hardness = anchor_hardness(query, key, scalar, 0.7).unsqueeze(1)
    pull = key - negative_penalty(query, key, vector, 0.1) @ vector
    torch.testing.assert_close(-grad * len(query), hardness / 0.1 * pull)


@pytest.mark.parametrize("tau", [0.05, 0.1, 1.0])
def test_eq9_with_equal_temperatures_is_info_nce(tau):
    query, key = unit(12, 8), unit(12, 8, seed=1)
    value, *grads = gradients(
        lambda q, k: dual_temperature_loss(q, k, tau_alpha=tau, tau_beta=tau), query, key
    )
    expected, *expected_grads = gradients(
        lambda q, k: oracle.in_batch(oracle.info_nce, q, k, tau).mean(), query, key
    )
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(grads, expected_grads)


def test_large_tau_beta_weighs_all_anchors_alike():
    query, key = tight_pairs(32, 16)
    _, grad = gradients(lambda q: dual_temperature_loss(q, key, tau_alpha=0.1, tau_beta=1e9), query)
    share = relative_penalty(query, key, tau=1e9)
    torch.testing.assert_close(share, torch.full_like(share, 1 / 32), rtol=1e-8, atol=0)
    # W tends to (N - 1) / N for every anchor, whatever its similarities.
    pull = key - negative_penalty(query, key, tau=0.1) @ key
    torch.testing.assert_close(-grad * 32, 31 / 32 / 0.1 * pull, rtol=1e-7, atol=1e-9)


def test_tau_beta_weighs_hard_anchors_more_when_small():
    query, key = tight_pairs(64, 16, noise=1.0)
    entropies = [penalty_entropy(relative_penalty(query, key, tau=tau)) for tau in (0.05, 0.2, 5.0)]
    assert entropies == sorted(entropies) and entropies[0] < 0.99 < entropies[-1]


@pytest.mark.parametrize("n", [2, 3, 8, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_rows_give_log_n(n, dtype):
    rows = unit(1, 16, dtype=dtype).expand(n, 16)
    expected = torch.tensor(math.log(n), dtype=dtype)
    for tau in TAUS:
        loss = dual_temperature_loss(rows, rows, tau_alpha=tau, tau_beta=tau)
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    loss = info_nce_loss(rows[:1], rows[:1], rows[1:], 0.5)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)


def test_symmetric_is_the_mean_of_both_sides():
    query, key = unit(12, 8), unit(12, 8, seed=1)
    both = dual_temperature_loss(query, key, symmetric=True)
    sides = dual_temperature_loss(query, key), dual_temperature_loss(key, query)
    torch.testing.assert_close(both, sum(sides) / 2)


def test_gathered_shards_are_the_whole_batch():
    """Two shards with gathered rows: mean loss and summed gradients of the whole."""
    query, key = unit(12, 8), unit(12, 8, seed=1)
    options = {"tau_alpha": 0.1, "tau_beta": 0.5, "symmetric": True}
    whole = gradients(lambda q, k: dual_temperature_loss(q, k, **options), query, key)

    def sharded(q, k):
        shards = (torch.arange(0, 5), torch.arange(5, 12))
        return sum(
            dual_temperature_loss(
                q[rows], k[rows], all_queries=q, all_keys=k, positive_index=rows, **options
            )
            * len(rows)
            / 12
            for rows in shards
        )

    torch.testing.assert_close(gradients(sharded, query, key), whole)


@pytest.mark.parametrize("vector, scalar", [(True, True), (True, False), (False, True)])
def test_a_component_in_the_batch_beside_one_with_a_bank(vector, scalar):
    """Eq. 7 with None for a component's dictionary: the textbook's form, anchor by anchor."""
    query, key, bank = unit(12, 8), unit(12, 8, seed=1), unit(30, 8, seed=2)
    banks = [None if vector else bank, None if scalar else bank]

    def textbook(q):
        rows = []
        for i in range(len(q)):
            others = torch.cat([key[:i], key[i + 1 :]])
            sides = [others if side is None else side for side in banks]
            rows.append(oracle.dual(q[i : i + 1], key[i : i + 1], *sides, 0.1, 0.7))
        return torch.cat(rows).mean()

    expected, expected_grad = gradients(textbook, query)
    value, grad = gradients(lambda q: decoupled_info_nce_loss(q, key, *banks, 0.1, 0.7), query)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(grad, expected_grad, rtol=1e-8, atol=1e-12)
    # Two shards with the gathered keys are the whole batch.
    shards = [
        gradients(
            lambda q, rows=rows: decoupled_info_nce_loss(
                q, key[rows], *banks, 0.1, 0.7, all_keys=key, positive_index=rows
            ),
            query[rows],
        )
        for rows in torch.arange(12).split(6)
    ]
    torch.testing.assert_close((shards[0][0] + shards[1][0]) / 2, value)
    torch.testing.assert_close(torch.cat([shard[1] for shard in shards]) / 2, grad)


def test_gradcheck():
    query, key, bank = (
        unit(*shape, seed=s).requires_grad_() for s, shape in enumerate([(6, 5), (6, 5), (9, 5)])
    )
    assert torch.autograd.gradcheck(lambda *x: info_nce_loss(*x, tau=0.3), (query, key, bank))
    equal = {"tau_alpha": 0.3, "tau_beta": 0.3}
    for symmetric in (False, True):
        assert torch.autograd.gradcheck(
            lambda q, k, s=symmetric: dual_temperature_loss(q, k, symmetric=s, **equal),
            (query, key),
        )
    # With two temperatures the weight is a constant to autograd: frozen at the point, the plain
    # form's numerical gradient must be ours.
    _, grad = gradients(
        lambda q: dual_temperature_loss(q, key.detach(), tau_alpha=0.3, tau_beta=0.9),
        query.detach(),
    )
    frozen = (
        oracle.in_batch(oracle.weight, query, key, 0.9)
        / oracle.in_batch(oracle.weight, query, key, 0.3)
    ).detach()
    numeric = torch.autograd.functional.jacobian(
        lambda q: (frozen * oracle.in_batch(oracle.info_nce, q, key.detach(), 0.3)).mean(), query
    )
    torch.testing.assert_close(grad, numeric)


# ---- precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tau_alpha", TAUS)
@pytest.mark.parametrize("noise", [0.05, 0.3, 3.0])
def test_float32_agrees_with_float64(tau_alpha, noise):
    query, key = (x.float() for x in tight_pairs(noise=noise))
    bank = unit(512, 128, seed=9, dtype=torch.float32)
    functions = [
        lambda q, k: dual_temperature_loss(q, k, tau_alpha=tau_alpha, tau_beta=1.0),
        lambda q, k: dual_temperature_loss(
            q, k, tau_alpha=tau_alpha, tau_beta=10 * tau_alpha, symmetric=True
        ),
        lambda q, k: dual_temperature_loss(q, k, tau_alpha=tau_alpha, tau_beta=tau_alpha),
        lambda q, k: info_nce_loss(q, k, bank.to(q.dtype), tau_alpha),
        lambda q, k: decoupled_info_nce_loss(
            q, k, bank.to(q.dtype), bank[:64].to(q.dtype), tau_alpha, 1.0
        ),
    ]
    for function in functions:
        single = gradients(function, query, key)
        double = gradients(function, query.double(), key.double())
        errors = [relative_error(s, d) for s, d in zip(single, double, strict=True)]
        assert max(errors) < 1e-5, errors


@pytest.mark.parametrize("tau_alpha", [0.01, 0.1, 2.0])
def test_float32_agrees_with_float64_on_a_large_matrix(tau_alpha):
    """Summed in float32: 1e-5 still, but at the lowest temperatures."""
    query, key = (x.float() for x in tight_pairs(n=1024))
    bank = unit(4096, 128, seed=9, dtype=torch.float32)
    for function in (
        lambda q, k: dual_temperature_loss(q, k, tau_alpha=tau_alpha, tau_beta=1.0),
        lambda q, k: info_nce_loss(q, k, bank.to(q.dtype), tau_alpha),
    ):
        single = gradients(function, query, key)
        double = gradients(function, query.double(), key.double())
        errors = [relative_error(s, d) for s, d in zip(single, double, strict=True)]
        assert max(errors) < (1e-5 if tau_alpha >= 0.02 else 3e-5), errors


@pytest.mark.parametrize("tau_alpha", [0.05, 0.1, 0.5, 2.0])
def test_float64_agrees_with_the_textbook(tau_alpha):
    query, key = tight_pairs(24, 16, noise=1.0)
    ours = gradients(
        lambda q, k: dual_temperature_loss(q, k, tau_alpha=tau_alpha, tau_beta=1.0), query, key
    )
    plain = gradients(lambda q, k: oracle.dual_in_batch(q, k, tau_alpha, 1.0), query, key)
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-11)


HARD = {
    "orthonormal": (torch.eye(8), torch.eye(8)),
    "antipodes": (torch.eye(2)[:1].repeat(2, 1) * torch.tensor([[1.0], [-1.0]]),) * 2,
    "antipodal positives": (torch.eye(8), -torch.eye(8)),
    "duplicates": (torch.eye(8)[:1].repeat(8, 1), torch.eye(8)[:1].repeat(8, 1)),
    "zero rows": (torch.eye(8) * (torch.arange(8) > 2).unsqueeze(1),) * 2,
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("tau", [0.01, 0.02, 0.04, 0.06, 0.12, 1.0])
def test_hard_inputs_stay_finite_and_right(name, tau):
    query, key = HARD[name]
    for options in ({"tau_beta": tau}, {"tau_beta": 1.0}, {"tau_beta": 1.0, "symmetric": True}):

        def function(q, k, options=options):
            return dual_temperature_loss(q, k, tau_alpha=tau, **options)

        single = gradients(function, query, key)
        double = gradients(function, query.double(), key.double())
        for actual, expected in zip(single, double, strict=True):
            assert actual.isfinite().all()
            torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-4)
    bank = torch.cat([key, -key])
    for actual in gradients(lambda q, k: info_nce_loss(q, k, bank, tau), query, key):
        assert actual.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_inputs(dtype):
    query, key = (x.to(dtype) for x in tight_pairs(64, 32))
    query[3] = 0
    expected = dual_temperature_loss(query.double(), key.double(), tau_alpha=0.01)
    loss, *grads = gradients(lambda q, k: dual_temperature_loss(q, k, tau_alpha=0.01), query, key)
    assert loss.dtype == torch.float32 and grads[0].dtype == dtype
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_normalising_a_zero_row_is_safe(dtype):
    features = torch.ones(4, 8, dtype=dtype)
    features[1] = 0
    features.requires_grad_()
    rows = l2_normalize(features)
    dual_temperature_loss(rows, rows.detach().roll(1, 0), tau_alpha=0.01).backward()
    assert rows.dtype == torch.float32 and rows[1].eq(0).all()
    assert features.grad.isfinite().all() and features.grad[1].eq(0).all()


def test_normalising_hides_nothing_and_holds_at_any_size():
    rows = torch.tensor([[1e-30, 1e-30], [1e20, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
    unit_rows = l2_normalize(rows)
    torch.testing.assert_close(unit_rows[:2].norm(dim=1), torch.ones(2))
    assert unit_rows[2:].isnan().any(dim=1).all()
    assert dual_temperature_loss(unit_rows, unit_rows).isnan()


def test_autocast_does_not_round_the_similarities():
    query, key = (x.float() for x in tight_pairs(64, 32))
    expected = dual_temperature_loss(query, key, tau_alpha=0.02)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = dual_temperature_loss(query, key, tau_alpha=0.02)
    torch.testing.assert_close(inside, expected, rtol=0, atol=0)


def test_hardness_of_very_easy_anchors_still_has_shares():
    """Every W underflows float32 at tau 0.005, their shares do not."""
    query = torch.eye(8)
    share = relative_penalty(query, query, tau=0.005)
    torch.testing.assert_close(share, torch.full((8,), 1 / 8))


# ---- components against the oracle ---------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.05, 0.3, 2.0])
def test_components_agree_with_the_textbook(tau):
    query, key, bank = unit(10, 6), unit(10, 6, seed=1), unit(15, 6, seed=2)
    plain = oracle.probabilities(query, key, bank, tau)[:, 1:]
    total = plain.sum(dim=1)
    torch.testing.assert_close(anchor_hardness(query, key, bank, tau), total)
    torch.testing.assert_close(negative_penalty(query, key, bank, tau), plain / total[:, None])
    share = relative_penalty(query, key, bank, tau)
    torch.testing.assert_close(share, total / total.sum())
    torch.testing.assert_close(penalty_entropy(share, normalized=False), -(share @ share.log()))
    in_batch = oracle.in_batch(oracle.weight, query, key, tau)
    torch.testing.assert_close(anchor_hardness(query, key, tau=tau), in_batch)
    # Shards with the gathered keys are the whole batch.
    shards = [
        anchor_hardness(query[rows], key[rows], tau=tau, all_keys=key, positive_index=rows)
        for rows in torch.arange(10).split([3, 7])
    ]
    torch.testing.assert_close(torch.cat(shards), in_batch)


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -0.1, math.nan, math.inf, "0.1", None, True])
def test_bad_temperatures_are_named(value):
    query, bank = unit(4, 3), unit(5, 3)
    for call, name in [
        (lambda: info_nce_loss(query, query, bank, value), "tau"),
        (lambda: decoupled_info_nce_loss(query, query, bank, bank, 0.1, value), "tau_beta"),
        (lambda: dual_temperature_loss(query, query, tau_alpha=value), "tau_alpha"),
        (lambda: dual_temperature_loss(query, query, tau_beta=value), "tau_beta"),
        (lambda: anchor_hardness(query, query, tau=value), "tau"),
        (lambda: negative_penalty(query, query, tau=value), "tau"),
        (lambda: relative_penalty(query, query, tau=value), "tau"),
    ]:
        with pytest.raises(ValueError, match=f"{name} must be .*got {value!r}"):
            call()


def test_bad_shapes_are_named():
    rows, one, other = unit(4, 3), unit(1, 3), unit(4, 2)
    with pytest.raises(ValueError, match=r"\(4, 3\) and \(4, 2\)"):
        dual_temperature_loss(rows, other)
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        dual_temperature_loss(one, one)
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        anchor_hardness(one, one)
    with pytest.raises(ValueError, match=r"negatives must have .* got \(4, 2\)"):
        info_nce_loss(rows, rows, other)
    with pytest.raises(ValueError, match=r"scalar_negatives must have .* got \(0, 3\)"):
        decoupled_info_nce_loss(rows, rows, rows, rows[:0])
    with pytest.raises(ValueError, match="N >= 1"):
        info_nce_loss(rows[:0], rows[:0], rows)
    with pytest.raises(ValueError, match="go together"):
        dual_temperature_loss(rows, rows, all_keys=rows)
    with pytest.raises(ValueError, match="go together"):
        anchor_hardness(rows, rows, all_keys=rows)
    with pytest.raises(ValueError, match="at least 2 entries"):
        penalty_entropy(torch.ones(1))


@pytest.mark.parametrize(
    "module", [m.name for m in pkgutil.iter_modules(losses.__path__, "simco_methods.losses.")]
)
def test_doctests(module):
    module = importlib.import_module(module)
    result = doctest.testmod(module, extraglobs={"torch": torch})
    assert result.failed == 0
