"""The losses' sweep over tiles: right across their edges, in little memory, waiting for nothing."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from simco_methods.losses import (
    anchor_hardness,
    decoupled_info_nce_loss,
    dual_temperature_loss,
    info_nce_loss,
    l2_normalize,
    logsumexp,
)
from tests.losses import oracle
from tests.losses.test_losses import gradients, relative_error, unit

ALPHA, BETA = 0.2, 0.7


@pytest.fixture(params=["kept", "computed again"])
def small_tiles(request, monkeypatch):
    """Of 8 anchors and 5 keys, so that there are many and the last ones are ragged."""
    monkeypatch.setattr(logsumexp, "_TILE", {"cpu": (8, 40)})
    monkeypatch.setattr(logsumexp, "_KEPT", 2**22 if request.param == "kept" else 0)


def gathered(query, key, symmetric):
    """The rows of one of the processes, out of order, beside those of another."""
    index = torch.randperm(len(query), generator=torch.Generator().manual_seed(0))
    everything = {"all_keys": key, "positive_index": index}
    if symmetric:
        everything["all_queries"] = query
    return dual_temperature_loss(
        query[index],
        key[index],
        tau_alpha=ALPHA,
        tau_beta=BETA,
        symmetric=symmetric,
        **everything,
    )


def one_side(query, key):
    return oracle.dual_in_batch(query, key, ALPHA, BETA)


def both_sides(query, key):
    return (one_side(query, key) + one_side(key, query)) / 2


def both_sides_ours(query, key, bank):
    return dual_temperature_loss(query, key, tau_alpha=ALPHA, tau_beta=BETA, symmetric=True)


# name -> (ours, textbook's), of query, key and a bank.
CASES = {
    "InfoNCE": (
        lambda q, k, bank: info_nce_loss(q, k, bank, ALPHA),
        lambda q, k, bank: oracle.info_nce(q, k, bank, ALPHA).mean(),
    ),
    "one bank": (
        lambda q, k, bank: decoupled_info_nce_loss(q, k, bank, bank, ALPHA, BETA),
        lambda q, k, bank: oracle.dual(q, k, bank, bank, ALPHA, BETA).mean(),
    ),
    "two banks": (
        lambda q, k, bank: decoupled_info_nce_loss(q, k, bank, bank[:7], ALPHA, BETA),
        lambda q, k, bank: oracle.dual(q, k, bank, bank[:7], ALPHA, BETA).mean(),
    ),
    "a bank of one row": (
        lambda q, k, bank: decoupled_info_nce_loss(q, k, bank[:1], bank, ALPHA, BETA),
        lambda q, k, bank: oracle.dual(q, k, bank[:1], bank, ALPHA, BETA).mean(),
    ),
    "batch": (
        lambda q, k, _: dual_temperature_loss(q, k, tau_alpha=ALPHA, tau_beta=BETA),
        lambda q, k, _: one_side(q, k),
    ),
    "batch, both sides": (both_sides_ours, lambda q, k, _: both_sides(q, k)),
    "gathered": (lambda q, k, _: gathered(q, k, False), lambda q, k, _: one_side(q, k)),
    "gathered, both sides": (
        lambda q, k, _: gathered(q, k, True),
        lambda q, k, _: both_sides(q, k),
    ),
    "hardness": (
        lambda q, k, bank: anchor_hardness(q, k, tau=ALPHA).square().sum(),
        lambda q, k, bank: oracle.in_batch(oracle.weight, q, k, ALPHA).square().sum(),
    ),
}


def rows(count=21):
    return [unit(n, 6, seed=seed) for seed, n in enumerate((count, count, 17))]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [2, 8, 9, 21])
def test_every_case_agrees_with_the_textbook(name, count, small_tiles):
    ours, textbook = CASES[name]
    value, *grads = gradients(ours, *rows(count))
    expected, *expected_grads = gradients(textbook, *rows(count))
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    for grad, expected_grad in zip(grads, expected_grads, strict=True):
        if grad is None:
            assert expected_grad is None or not expected_grad.any()
        else:
            # The textbook's gradient reaches the scalar component's bank no more than ours.
            torch.testing.assert_close(grad, expected_grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["InfoNCE", "batch", "batch, both sides", "gathered", "hardness"])
def test_gradcheck(name, small_tiles, monkeypatch):
    """With equal temperatures: with two, the weight is a constant to autograd and to it alone."""
    monkeypatch.setitem(globals(), "BETA", ALPHA)
    assert torch.autograd.gradcheck(CASES[name][0], [x.requires_grad_() for x in rows(9)])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_have_their_tensor_s_type(name, dtype, small_tiles):
    tensors = [x.to(dtype) for x in rows()]
    value, *grads = gradients(CASES[name][0], *tensors)
    expected = CASES[name][0](*[x.double() for x in tensors])
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    assert {grad.dtype for grad in grads if grad is not None} == {dtype}


@pytest.mark.parametrize("name", CASES)
def test_nothing_comes_of_no_gradient(name, small_tiles):
    for grad in gradients(lambda *x: 0 * CASES[name][0](*x), *rows())[1:]:
        assert grad is None or not grad.any()


@pytest.mark.parametrize("name", CASES)
def test_a_backward_under_autocast_is_in_full_precision(name, small_tiles):
    tensors = [x.float() for x in rows()]
    expected = gradients(CASES[name][0], *tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for actual, one in zip(gradients(CASES[name][0], *tensors), expected, strict=True):
            assert actual is one or torch.equal(actual, one)


def test_compiled_code_can_call_it(small_tiles):
    expected = gradients(both_sides_ours, *rows())
    compiled = torch.compile(lambda *x: 1 * both_sides_ours(*x), backend="eager")
    for actual, one in zip(gradients(compiled, *rows()), expected, strict=True):
        assert actual is one or torch.equal(actual, one)


def test_a_row_that_does_not_exist_is_refused(small_tiles):
    query, key, _ = rows()
    for index in (torch.arange(21) + 1, torch.arange(21) - 1):
        with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
            dual_temperature_loss(query, key, all_keys=key, positive_index=index)


# ---- large -------------------------------------------------------------------------------------


def dense(similarity, tau_alpha, tau_beta):
    """Eq. 9 of a float64 matrix, in the stable form."""
    own = torch.eye(len(similarity), dtype=torch.bool)
    negatives, positive = similarity.masked_fill(own, -torch.inf), similarity.diagonal()
    logits = [torch.logsumexp(negatives / t, 1) - positive / t for t in (tau_alpha, tau_beta)]
    weight = F.logsigmoid(logits[1]) - F.logsigmoid(logits[0])
    return (weight.exp().detach() * -F.logsigmoid(-logits[0])).mean()


def dense_both(query, key, tau_alpha, tau_beta):
    similarity = query @ key.T
    return sum(dense(side, tau_alpha, tau_beta) for side in (similarity, similarity.T)) / 2


@pytest.mark.parametrize(
    "n, tau_alpha, tau_beta, spread, limit",
    [
        (300, 0.01, 1.0, 1.0, 1e-5),
        (300, 0.1, 0.04, 1.0, 1e-5),
        (300, 0.05, 1.0, 0.03, 1e-5),
        (2100, 0.01, 1.0, 1.0, 3e-5),
        (2100, 0.05, 0.5, 1.0, 1e-5),
        (2100, 0.1, 1.0, 0.03, 1e-5),
        (2100, 2.0, 0.05, 1.0, 1e-5),
    ],
)
def test_both_sides_of_a_large_batch(n, tau_alpha, tau_beta, spread, limit):
    """Also where all embeddings are nearly alike, and the gradient is what their means leave."""
    query = l2_normalize(unit(1, 64, seed=5) + spread * unit(n, 64))
    key = l2_normalize(query + 0.3 * spread * unit(n, 64, seed=1))
    single = [x.float() for x in (query, key)]
    expected = gradients(
        lambda q, k: dense_both(q, k, tau_alpha, tau_beta), *[x.double() for x in single]
    )
    actual = gradients(
        lambda q, k: dual_temperature_loss(
            q, k, tau_alpha=tau_alpha, tau_beta=tau_beta, symmetric=True
        ),
        *single,
    )
    errors = [relative_error(a, e) for a, e in zip(actual, expected, strict=True)]
    assert max(errors) < limit, errors


@pytest.mark.parametrize("tau", [0.05, 0.3, 2.0])
def test_a_large_bank(tau):
    query, key, bank = (x.float() for x in (unit(72, 32), unit(72, 32, seed=1), unit(2**16, 32)))
    expected = gradients(
        lambda q, k, b: F.cross_entropy(
            torch.cat([(q * k).sum(dim=1, keepdim=True), q @ b.T], dim=1) / tau,
            torch.zeros(len(q), dtype=torch.long),
        ),
        *[x.double() for x in (query, key, bank)],
    )
    actual = gradients(lambda q, k, b: info_nce_loss(q, k, b, tau), query, key, bank)
    errors = [relative_error(a, e) for a, e in zip(actual, expected, strict=True)]
    assert max(errors) < 1e-5, errors


# ---- memory, work and waiting ------------------------------------------------------------------


class Watch(TorchDispatchMode):
    """The largest storage made, the products taken, and no look at what a tensor holds."""

    def __init__(self, *inputs):
        super().__init__()
        self.inputs = {x.untyped_storage().data_ptr() for x in inputs}
        self.largest, self.products = 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        masked = name.startswith(("index", "index_put")) and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        looks = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique")
        if masked or name in looks:
            raise AssertionError(f"{name} waits for the device")
        self.products += name in ("addmm", "addmm_", "mm")
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self.inputs:
                    self.largest = max(self.largest, storage.nbytes())
        return out


@pytest.mark.parametrize("name", CASES)
def test_waits_for_nothing(name, small_tiles):
    tensors = [x.float().requires_grad_() for x in rows()]
    with Watch():
        CASES[name][0](*tensors).backward()


def test_a_watch_sees_those_who_wait():
    for wait in (lambda x: float(x.sum()), lambda x: x[x > 0], lambda x: bool((x > 0).any())):
        with pytest.raises(AssertionError, match="waits"), Watch():
            wait(torch.ones(3))


@pytest.mark.parametrize(
    "name", ["batch", "batch, both sides", "gathered, both sides", "InfoNCE", "two banks"]
)
def test_no_matrix_of_all_similarities(name):
    """2,400 anchors and as many keys, or 65,536: 23 MB and more, in tiles of 1 MB."""
    batch = "batch" in name or "gathered" in name
    anchors, keys = (2400, 1) if batch else (72, 2**16)
    tensors = [unit(n, 16, seed=n).float() for n in (anchors, anchors, keys)]
    tensors[:2] = (x.requires_grad_() for x in tensors[:2])
    saved = []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda x: saved.append(x.untyped_storage()) or x, lambda x: x
    )
    with Watch(*tensors) as watch, hooks:
        CASES[name][0](*tensors).backward()
    assert watch.largest <= 2**20
    inputs = {x.untyped_storage().data_ptr() for x in tensors}
    held = {x.data_ptr(): x.nbytes() for x in saved if x.data_ptr() not in inputs}
    assert sum(held.values()) <= 8 * sum(x.nbytes for x in tensors[:2])


@pytest.mark.parametrize(
    "name, trained, products",
    [
        ("InfoNCE", "qkb", 3),  # similarities; the gradients of anchors and bank
        ("InfoNCE", "q", 2),
        ("InfoNCE", "k", 1),  # of the positive alone
        ("batch", "qk", 3),
        ("batch", "q", 2),
        ("batch, both sides", "qk", 3),
        ("batch, both sides", "k", 2),
        ("two banks", "q", 3),
    ],
)
@pytest.mark.parametrize("kept", [True, False])
def test_takes_no_product_that_is_not_needed(name, trained, products, kept, monkeypatch):
    if not kept:
        monkeypatch.setattr(logsumexp, "_KEPT", 0)
        products += products > 1  # the similarities again
    tensors = [x.requires_grad_(which in trained) for which, x in zip("qkb", rows(), strict=True)]
    with Watch() as watch:
        CASES[name][0](*tensors).backward()
    assert watch.products == products
    assert [x.grad is not None for x in tensors] == [which in trained for which in "qkb"]
