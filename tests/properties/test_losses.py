"""The losses against a float64 oracle, and what leaves them as they are, for any input."""

from unittest.mock import patch

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from simco_methods.losses import (
    anchor_hardness,
    class_hardness,
    decoupled_info_nce_loss,
    dual_temperature_loss,
    info_nce_loss,
    l2_normalize,
    logsumexp,
    negative_penalty,
    penalty_entropy,
    relative_penalty,
    weighted_cross_entropy_loss,
)
from tests.losses import oracle
from tests.losses.test_losses import gradients
from tests.properties.drawn import FLOATS, problems, seeds, temperatures

sizes = st.integers(1, 12)


def gathered(query, key, alpha, beta, symmetric):
    """The loss as two processes have it, whose rows stand anywhere in the gathered ones."""
    order = torch.randperm(len(query), generator=torch.Generator().manual_seed(len(query)))
    losses = 0
    for rows in order.tensor_split([(len(query) + 1) // 2]):
        if len(rows):
            loss = dual_temperature_loss(
                query[rows],
                key[rows],
                tau_alpha=alpha,
                tau_beta=beta,
                symmetric=symmetric,
                all_keys=key,
                all_queries=query if symmetric else None,
                positive_index=rows,
            )
            losses = losses + loss * len(rows) / len(query)
    return losses


def in_batch(function, query, key, *taus):
    return oracle.in_batch(function, query, key, *taus).mean()


def mixed(query, key, bank, alpha, beta, vector, scalar):
    """Eq. 7 by the textbook, a component's negatives the bank or the other rows of the batch."""
    losses = []
    for i in range(len(query)):
        others = torch.cat([key[:i], key[i + 1 :]])
        banks = [bank if chosen else others for chosen in (vector, scalar)]
        losses.append(oracle.dual(query[i : i + 1], key[i : i + 1], *banks, alpha, beta))
    return torch.cat(losses).mean()


def both(function, query, key, *taus):
    return (in_batch(function, query, key, *taus) + in_batch(function, key, query, *taus)) / 2


def dual_row(query, key, others, alpha, beta):
    return oracle.dual(query, key, others, others, alpha, beta)


# name -> (ours, the oracle's), of query, key, a bank and two temperatures.
CASES = {
    "InfoNCE": (
        lambda q, k, bank, a, b: info_nce_loss(q, k, bank, a),
        lambda q, k, bank, a, b: oracle.info_nce(q, k, bank, a).mean(),
    ),
    "dual": (
        lambda q, k, bank, a, b: dual_temperature_loss(q, k, tau_alpha=a, tau_beta=b),
        lambda q, k, bank, a, b: in_batch(dual_row, q, k, a, b),
    ),
    "symmetric": (
        lambda q, k, bank, a, b: dual_temperature_loss(
            q, k, tau_alpha=a, tau_beta=b, symmetric=True
        ),
        lambda q, k, bank, a, b: both(dual_row, q, k, a, b),
    ),
    "gathered": (
        lambda q, k, bank, a, b: gathered(q, k, a, b, False),
        lambda q, k, bank, a, b: in_batch(dual_row, q, k, a, b),
    ),
    "gathered, symmetric": (
        lambda q, k, bank, a, b: gathered(q, k, a, b, True),
        lambda q, k, bank, a, b: both(dual_row, q, k, a, b),
    ),
    "decoupled": (
        lambda q, k, bank, a, b: decoupled_info_nce_loss(q, k, bank, bank[:3], a, b),
        lambda q, k, bank, a, b: oracle.dual(q, k, bank, bank[:3], a, b).mean(),
    ),
    "vector in the batch": (
        lambda q, k, bank, a, b: decoupled_info_nce_loss(q, k, None, bank, a, b),
        lambda q, k, bank, a, b: mixed(q, k, bank, a, b, False, True),
    ),
    "scalar in the batch": (
        lambda q, k, bank, a, b: decoupled_info_nce_loss(q, k, bank, None, a, b),
        lambda q, k, bank, a, b: mixed(q, k, bank, a, b, True, False),
    ),
}
IN_BATCH = [name for name in CASES if name not in ("InfoNCE", "decoupled")]


@st.composite
def tilings(draw):
    """How the matrix of similarities is cut, and whether its tiles are kept for the backward."""
    rows = draw(sizes)
    return patch.multiple(
        logsumexp,
        _TILE={"cpu": (rows, rows * draw(sizes))},
        _KEPT=draw(st.sampled_from([0, 2**22])),
    )


def close(actual, expected, scale, bound):
    """Finite, and within ``bound`` of float64 relative to ``scale``, or as its type allows."""
    assert actual.isfinite().all()
    error = (actual.double() - expected).abs().max()
    number = torch.finfo(actual.dtype)
    assert error <= max(bound, number.eps) * scale + number.tiny, f"{error:.2g} off at {scale:.2g}"


@given(st.sampled_from(sorted(CASES)), problems(), tilings())
def test_loss_and_gradients_are_the_oracle_s(name, problem, tiling):
    tensors, alpha, beta = problem.make(), problem.alpha, problem.beta
    ours, textbook = (
        lambda q, k, bank, function=function: function(q, k, bank, alpha, beta)
        for function in CASES[name]
    )
    with tiling:
        value, *grads = gradients(ours, *tensors)
    expected, *expected_grads = gradients(textbook, *[rows.double() for rows in tensors])
    # A bank in float64 does not make the other component's similarities finer.
    bound = 1e-9 if torch.float64 in problem.types[:2] else 1e-5
    close(value, expected, float(expected), bound)
    for grad, wanted, dtype in zip(grads, expected_grads, problem.types, strict=True):
        if grad is None:  # of a bank that the loss does not take
            assert wanted is None or not wanted.any()
            continue
        # A loss of L has weights of at most L, and so pulls of at most L / tau.
        scale = max(float(wanted.abs().max()), float(expected) / alpha / len(tensors[0]))
        assert grad.dtype == dtype
        close(grad, wanted, scale, bound)


# ---- what leaves a loss as it is -----------------------------------------------------------------

doubles = problems(dtypes=[torch.float64])
unrelated = problems(dtypes=[torch.float64], kinds=["random", "tight", "orthonormal"])


@given(st.sampled_from(sorted(CASES)), doubles, tilings(), seeds)
def test_turning_all_vectors_or_reordering_changes_nothing(name, problem, tiling, seed):
    query, key, bank = problem.make()
    taus = problem.alpha, problem.beta
    generator = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(
        torch.randn(2 * (query.shape[1],), generator=generator, dtype=torch.float64)
    )
    rows, places = (torch.randperm(len(x), generator=generator) for x in (query, bank))
    if name == "decoupled":  # whose scalar component has the first rows
        places = torch.arange(len(bank))
    function = CASES[name][0]
    value, *grads = gradients(lambda *x: function(*x, *taus), query, key, bank)
    with tiling:
        moved, *moved_grads = gradients(
            lambda *x: function(*x, *taus),
            query[rows] @ turn,
            key[rows] @ turn,
            bank[places] @ turn,
        )
    close(moved, value, float(value), 1e-9)
    for grad, other, order in zip(grads, moved_grads, (rows, rows, places), strict=True):
        if grad is not None:
            scale = max(float(grad.abs().max()), float(value) / problem.alpha)
            close(other, grad[order] @ turn, scale, 1e-9)


@given(st.sampled_from(sorted(CASES)), unrelated)
def test_a_gradient_never_changes_a_vector_s_length_nor_moves_all_keys(name, problem):
    """A loss of the directions alone, and of an anchor's similarities' differences alone."""
    generator = torch.Generator().manual_seed(problem.query.seed)
    leaves = [
        x * (0.1 + torch.rand(len(x), 1, generator=generator, dtype=x.dtype))
        for x in problem.make()
    ]
    function = CASES[name][0]
    value, *grads = gradients(
        lambda *x: function(*map(l2_normalize, x), problem.alpha, problem.beta), *leaves
    )
    scale = float(value) / problem.alpha
    for leaf, grad in zip(leaves, grads, strict=True):
        if grad is not None:
            close((leaf * grad).sum(dim=1), torch.zeros(len(leaf)), scale, 1e-9)
    if "symmetric" not in name:
        _, query_grad, key_grad, bank_grad = gradients(
            lambda *x: function(*x, problem.alpha, problem.beta), *problem.make()
        )
        total = key_grad.sum(dim=0) + (0 if bank_grad is None else bank_grad.sum(dim=0))
        close(total, torch.zeros_like(total), scale, 1e-9)


@given(st.sampled_from(sorted(CASES)), unrelated, seeds)
def test_finite_differences_at_equal_temperatures(name, problem, seed):
    """With two temperatures the weight is a constant to autograd: see the oracle's test."""
    tau, step = max(problem.alpha, 0.05), 1e-6
    generator = torch.Generator().manual_seed(seed)
    tensors = problem.make()
    if name == "decoupled":  # whose components have two dictionaries
        tensors[2] = tensors[2][:3]
    way = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in tensors]
    if "in the batch" in name:
        name = "dual"
    value, *grads = gradients(lambda *x: CASES[name][0](*x, tau, tau), *tensors)
    slope = sum((g * d).sum() for g, d in zip(grads, way, strict=True) if g is not None)
    ahead, behind = (
        CASES[name][0](*[x + sign * step * d for x, d in zip(tensors, way, strict=True)], tau, tau)
        for sign in (1, -1)
    )
    close(slope, (ahead - behind) / (2 * step), 1 + float(value) / tau, 1e-5)


@given(doubles)
def test_equal_temperatures_give_info_nce(problem):
    (query, key, bank), tau = problem.make(), problem.alpha
    value = info_nce_loss(query, key, bank, tau)
    close(decoupled_info_nce_loss(query, key, bank, bank, tau, tau), value, float(value), 1e-9)
    others = in_batch(oracle.info_nce, query, key, tau)
    value = dual_temperature_loss(query, key, tau_alpha=tau, tau_beta=tau)
    close(value, others, float(others), 1e-9)


# ---- what is measured on them --------------------------------------------------------------------


@given(problems(), tilings(), st.booleans())
def test_hardness_and_penalties_are_the_oracle_s(problem, tiling, batch):
    (query, key, bank), tau = problem.make(), problem.alpha
    negatives = None if batch else bank
    with tiling:
        hardness = anchor_hardness(query, key, negatives, tau)
        share = relative_penalty(query, key, negatives, tau)
    penalty = negative_penalty(query, key, negatives, tau)
    query, key, bank = (x.double() for x in (query, key, bank))
    if batch:
        expected = oracle.in_batch(oracle.weight, query, key, tau)
        logits = (query @ key.T / tau).fill_diagonal_(-torch.inf)
    else:
        expected = oracle.weight(query, key, bank, tau)
        logits = query @ bank.T / tau
    for found, wanted in (
        (hardness, expected),
        (share, expected / expected.sum()),
        (penalty, torch.softmax(logits, dim=1)),
    ):
        close(found, wanted, 1.0, 2e-5 if found.dtype == torch.float32 else 1e-9)
        assert (found >= 0).all() and (found <= 1).all()
    close(share.sum(), torch.ones(()), 1.0, 1e-6)
    close(penalty.sum(dim=1), torch.ones(len(query)), 1.0, 1e-6)
    for entropy in (penalty_entropy(share), *(penalty_entropy(penalty) if len(bank) > 1 else ())):
        assert -1e-6 <= entropy <= 1 + 1e-6


# ---- cross entropy -------------------------------------------------------------------------------


@given(
    count=st.integers(1, 12),
    classes=st.integers(2, 9),
    spread=st.sampled_from([0.0, 1.0, 8.0]),
    dtype=st.sampled_from(FLOATS),
    alpha=st.floats(0.2, 4.0),
    beta=st.floats(0.2, 4.0) | st.none(),
    labelled=st.sampled_from([0.0, 0.5, 1.0]),
    seed=seeds,
)
def test_cross_entropy_is_the_oracle_s(count, classes, spread, dtype, alpha, beta, labelled, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    logits = logits.to(dtype)
    targets = torch.randint(classes, (count,), generator=generator)
    targets[torch.rand(count, generator=generator) >= labelled] = -1
    beta = alpha if beta is None else beta

    def textbook(x):
        """Class scores as similarities of an anchor: to its class, and to the others."""
        rows = [x.sum() * 0]
        for row, target in zip(x, targets.tolist(), strict=True):
            if target >= 0:
                others = torch.cat([row[:target], row[target + 1 :]])
                odds = [torch.exp((others - row[target]) / tau).sum() for tau in (alpha, beta)]
                weights = [o / (1 + o) for o in odds]
                rows.append((weights[1] / weights[0]).detach() * torch.log1p(odds[0]))
        return sum(rows) / max(1, len(rows) - 1)

    value, grad = gradients(
        lambda x: weighted_cross_entropy_loss(x, targets, tau_alpha=alpha, tau_beta=beta), logits
    )
    expected, expected_grad = gradients(textbook, logits.double())
    bound = 1e-5 if value.dtype == torch.float32 else 1e-9
    close(value, expected, float(expected), bound)
    close(grad, expected_grad, float(expected_grad.abs().max()), bound)
    if alpha == beta and (targets >= 0).any():
        plain = F.cross_entropy(logits.double() / alpha, targets, ignore_index=-1)
        close(value, plain, 1 + float(plain), bound)  # plain is 0 where all is easy
    hardness = class_hardness(logits, targets, beta)
    assert (hardness[targets == -1] == 0).all() and (hardness[targets >= 0] > 0).all()


@given(st.integers(1, 6), st.integers(2, 6), st.sampled_from(FLOATS), temperatures, seeds)
def test_cross_entropy_of_huge_logits_is_finite(count, classes, dtype, tau, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = (3e4 * torch.randn(count, classes, generator=generator)).clamp(-6e4, 6e4).to(dtype)
    targets = torch.randint(-1, classes, (count,), generator=generator)
    for options in ({"tau_alpha": tau}, {"tau_beta": tau}, {"tau_beta": tau, "equal_weight": True}):
        found = gradients(
            lambda x, options=options: weighted_cross_entropy_loss(x, targets, **options), logits
        )
        assert all(x.isfinite().all() for x in found)
