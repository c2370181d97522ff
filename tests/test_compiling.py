"""Compiled forwards: the same numbers, names and random state; plain ones without a compiler."""

import contextlib
import copy

import numpy as np
import pytest
import torch

from simco_methods import compiling
from simco_methods.compiling import compile_forwards, compiled_if_possible
from simco_methods.data.augment import augment
from simco_methods.data.draws import ViewSettings, draw_views
from simco_methods.data.parameters import Parameters
from tests.helpers import VARIANTS, batch, build, compose_config


@pytest.fixture
def traced(monkeypatch):
    """Traces forward and backward as for the compiler, and runs them without it."""

    def compiled(function, device):
        return torch.compile(function, dynamic=False, backend="aot_eager")

    monkeypatch.setattr(compiling, "compiled", compiled)
    yield
    torch._dynamo.reset()


@pytest.fixture
def broken(monkeypatch):
    def refuse(graph, inputs):
        raise RuntimeError("no compiler\nhere")

    def compiled(function, device):
        return torch.compile(function, backend=refuse)

    monkeypatch.setattr(compiling, "compiled", compiled)
    yield
    torch._dynamo.reset()


def step(model):
    """Loss and gradients of a training step, and the state after it."""
    model.zero_grad()
    loss = model.training_step(batch(), 0)
    loss.backward()
    grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), grads, copy.deepcopy(model.state_dict())


# Tracing takes seconds a method.
QUICK = [("simco", False), ("mocov2", False)]


@pytest.mark.parametrize(
    "method, symmetric",
    [
        variant if variant in QUICK else pytest.param(*variant, marks=pytest.mark.slow)
        for variant in VARIANTS
    ],
)
def test_a_step_is_that_of_the_plain_model(method, symmetric, traced):
    plain, model = build(method, symmetric), build(method, symmetric)
    random = torch.random.get_rng_state()
    images = torch.zeros(8, 3, 16, 16)
    assert compile_forwards(model, images, contextlib.nullcontext)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert all(p.grad is None for p in model.parameters())
    expected, found = step(plain), step(model)
    for theirs, ours in zip(expected, found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_compiled_step_is_that_of_the_plain_model():
    plain, model = build("simmoco"), build("simmoco")
    assert compile_forwards(model, torch.zeros(8, 3, 16, 16), contextlib.nullcontext)
    for theirs, ours in zip(step(plain), step(model), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-4)
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_compiled_augmentation_is_that_of_the_plain_one():
    settings = ViewSettings.from_config(compose_config("cifar10/simco").augmentations[0])
    rows = np.arange(24)
    draws = draw_views(settings, np.full((24, 2), 32), 5, 0 * rows, rows, 0 * rows)
    parameters = Parameters.from_draws(settings, draws, torch.device("cpu"))
    pixels = torch.randint(256, (24, 32, 3, 32), dtype=torch.uint8)
    made = compiled_if_possible(augment, torch.device("cpu"))(pixels, settings, parameters)
    difference = (made - augment(pixels, settings, parameters)).abs()
    assert difference.max() <= 2 and difference.mean() < 1e-2
    torch._dynamo.reset()


def test_evaluation_is_plain(traced):
    model = build("simco")
    assert compile_forwards(model, torch.zeros(8, 3, 16, 16), contextlib.nullcontext)
    other = build("simco")
    images = batch()[1][0][:3]  # another shape
    for net in (model.eval(), other.eval()):
        net.found = net(images)["feats"]
    assert torch.equal(model.found, other.found)


def test_without_a_compiler_the_model_is_as_it_was(broken, capsys):
    model, plain = build("simmoco"), build("simmoco")
    assert not compile_forwards(model, torch.zeros(8, 3, 16, 16), contextlib.nullcontext)
    said = capsys.readouterr().out
    assert "performance.compile: the network cannot be compiled here" in said
    assert "the run goes on without" in said and "\nhere" not in said
    assert "forward" not in vars(model) and "momentum_forward" not in vars(model)
    for theirs, ours in zip(step(plain), step(model), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_without_torch_compile_all_is_plain(monkeypatch, capsys):
    """It raises itself where it knows no such Python."""

    def refuse(*args, **kwargs):
        raise RuntimeError("Dynamo is not supported here")

    monkeypatch.setattr(torch, "compile", refuse)
    model = build("simco")
    assert not compile_forwards(model, torch.zeros(8, 3, 16, 16), contextlib.nullcontext)
    function = compiled_if_possible(torch.neg, torch.device("cpu"))
    assert function(torch.ones(1)).item() == -1
    assert capsys.readouterr().out.count("Dynamo is not supported here") == 2


def test_a_function_that_cannot_be_compiled_is_called_plain(broken, capsys):
    def doubled(x):
        return 2 * x

    function = compiled_if_possible(doubled, torch.device("cpu"))
    assert [function(torch.ones(1)).item() for _ in range(2)] == [2.0, 2.0]
    assert capsys.readouterr().out.count("doubled cannot be compiled here") == 1
