"""The built-in host against figures recorded from solo-learn 1.0.6 (tests/figures)."""

import inspect
import json

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from simco_methods.config.parse import parse
from simco_methods.host.builtin import BaseMethod, BaseMomentumMethod
from simco_methods.host.builtin.optimizers import lars, without_decay_on_vectors
from simco_methods.host.ema import MomentumUpdater
from simco_methods.host.knn import OnlineKNN, knn_accuracy
from simco_methods.host.schedule import WarmupCosineLR
from tests import FIGURES
from tests.helpers import batch, model_config
from tests.host.test_knn import reference

STATES = json.loads((FIGURES / "state_dicts.json").read_text())
SCHEDULES = json.loads((FIGURES / "schedules.json").read_text())
HOOKS = json.loads((FIGURES / "hooks.json").read_text())
KNN = json.loads((FIGURES / "knn.json").read_text())


def build(case):
    base, backbone, dataset = case.split("/")
    figures = STATES[case]
    cfg = model_config("base", optimizer__classifier_lr=0.3)
    cfg.backbone = {"name": backbone, "kwargs": figures["backbone_kwargs"]}
    cfg.data.dataset = dataset
    cfg.data.num_classes = 100 if dataset.endswith("100") else 10
    cfg.momentum.classifier = base.endswith("+classifier")
    return (BaseMomentumMethod if "Momentum" in base else BaseMethod)(cfg)


@pytest.mark.parametrize("case", STATES)
def test_state_dict_groups_and_outputs(case):
    figures = STATES[case]
    model = build(case).eval()
    state = {name: list(value.shape) for name, value in model.state_dict().items()}
    assert state == figures["state_dict"]
    assert model.features_dim == figures["features_dim"]
    groups = [
        {
            **{key: value for key, value in group.items() if key != "params"},
            "params": sum(p.numel() for p in group["params"]),
        }
        for group in model.learnable_params
    ]
    assert groups == figures["learnable_params"]
    with torch.no_grad():
        out = model(torch.randn(2, 3, figures["image_size"], figures["image_size"]))
    assert sorted(out) == figures["forward_keys"]
    assert list(out["feats"].shape) == figures["feats_shape"]


@pytest.mark.parametrize("hook", HOOKS["hooks"])
def test_hooks(hook):
    owner, name = hook.split(".")
    member = inspect.getattr_static(
        {"BaseMethod": BaseMethod, "BaseMomentumMethod": BaseMomentumMethod}[owner], name
    )
    expected = HOOKS["hooks"][hook]
    kinds = {"property": property, "staticmethod": staticmethod}
    if expected["kind"] in kinds:
        assert isinstance(member, kinds[expected["kind"]])
    if "parameters" in expected:
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        assert list(inspect.signature(function).parameters) == expected["parameters"]


def test_step_outputs():
    model = build("BaseMomentumMethod+classifier/resnet18/cifar10")
    _, (view, _), targets = batch(4, size=32)
    out = model.base_training_step(view, targets)
    assert {k: list(v.shape) for k, v in out.items()} == HOOKS["base_training_step_keys"]
    out = model._shared_step_momentum(view, targets)
    assert sorted(out) == HOOKS["shared_step_momentum_keys"]
    out = model.momentum_forward(view)
    assert {k: list(v.shape) for k, v in out.items()} == HOOKS["momentum_forward_keys"]


def test_momentum_steps_train_both_probes():
    model = build("BaseMomentumMethod+classifier/resnet18/cifar10")
    out = model.training_step(batch(4, size=32), 0)
    assert {"feats", "logits", "momentum_feats", "momentum_logits", "momentum_loss"} <= set(out)
    out["loss"].backward()
    assert model.momentum_classifier.weight.grad is not None
    assert model.classifier.weight.grad is not None


def test_lars_adapts_every_tensor_or_only_matrices():
    """A step of lr * eta * |w|, whatever the gradient's size and the group's weight decay."""
    for exclude in (False, True):
        weight, bias = (torch.nn.Parameter(torch.ones(shape)) for shape in ((4, 4), (4,)))
        weight.grad, bias.grad = torch.full((4, 4), 50.0), torch.full((4,), 50.0)
        optimizer = lars(
            [{"params": [weight, bias], "weight_decay": 0}],
            lr=0.1,
            weight_decay=0,
            eta=0.02,
            exclude_bias_n_norm=exclude,
        )
        optimizer.step()
        torch.testing.assert_close(
            weight.data, torch.full((4, 4), 1 - 0.1 * 0.02), rtol=1e-5, atol=0
        )
        expected = 1 - 0.1 * 50.0 if exclude else 1 - 0.1 * 0.02
        torch.testing.assert_close(bias.data, torch.full((4,), expected), rtol=1e-5, atol=0)


def test_vectors_get_no_decay_where_asked():
    """Every tensor of one dimension or less once, at decay 0; the probe keeps its own rate."""
    model = build("BaseMethod/resnet18/cifar10")
    groups = without_decay_on_vectors(model.learnable_params)
    tensors = [(p, group) for group in groups for p in group["params"]]
    assert len(tensors) == len({id(p) for p, _ in tensors}) == len(list(model.parameters()))
    for parameter, group in tensors:
        if parameter.ndim <= 1:
            assert group["weight_decay"] == 0
        if group["name"].startswith("classifier"):
            assert group["lr"] == model.classifier_lr


def settings(name):
    return {k: float(v) for k, v in (part.split("=") for part in name.split(","))}


@pytest.mark.parametrize("name", SCHEDULES["warmup_cosine"])
def test_learning_rates(name):
    figures, values = SCHEDULES["warmup_cosine"][name], settings(name)
    groups = [
        {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in figures["base_lrs"]
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    scheduler = WarmupCosineLR(
        optimizer,
        warmup_steps=int(values["warmup"]),
        total_steps=int(values["total"]),
        warmup_start_lr=values["start"],
        min_lr=values["eta_min"],
    )
    seen = []
    for _ in figures["lr_per_step"]:
        seen.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(seen, figures["lr_per_step"], rtol=1e-9)


@pytest.mark.parametrize("name", SCHEDULES["momentum_tau"])
def test_momentum_tau(name):
    figures, values = SCHEDULES["momentum_tau"][name], settings(name)
    updater = MomentumUpdater(values["base"], values["final"])
    seen = [updater.cur_tau]
    for step in range(1, int(values["steps"]) + 1):
        updater.update_tau(step, int(values["steps"]))
        seen.append(updater.cur_tau)
    np.testing.assert_allclose(seen, figures, rtol=1e-12)


@pytest.mark.parametrize("name", KNN["results"])
@pytest.mark.parametrize("memory", [None, 0.01], ids=["at once", "in tiles"])
def test_knn(name, memory):
    arrays = {k: torch.from_numpy(v) for k, v in np.load(FIGURES / "knn_inputs.npz").items()}
    distance, k = name.split(",k=")
    acc1, acc5 = knn_accuracy(
        **arrays,
        k=int(k),
        temperature=KNN["temperature"],
        distance=distance,
        memory_mib=memory,
    )
    recorded = KNN["results"][name]
    assert acc1 == pytest.approx(recorded["acc1"])
    if k == "5":  # solo-learn's five go on with classes that none of the neighbours is of
        assert acc5 == pytest.approx(reference(**arrays, k=5, distance=distance, classes=7)[1])
        assert acc1 < acc5 < recorded["acc5"]
    else:
        assert acc5 == pytest.approx(recorded["acc5"])
    metric = OnlineKNN(int(k), distance, num_classes=7)
    for side in ("train", "test"):
        rows = zip(
            arrays[f"{side}_features"].split(33), arrays[f"{side}_targets"].split(33), strict=True
        )
        for features, targets in rows:
            metric.update(side, features, targets)
    assert metric.compute() == pytest.approx((acc1, acc5))


def test_parsed_config():
    """The same keys and values as solo-learn's parsing, for what the built-in host reads."""
    figures = json.loads((FIGURES / "parsed_cfg.json").read_text())
    cfg = OmegaConf.create(figures["input"])
    expected = OmegaConf.create(figures["parsed"])
    cfg.data.no_labels = False
    parsed = BaseMethod.add_and_assert_specific_cfg(parse(cfg, world_size=2))
    for key in (
        "data.num_classes",
        "data.num_large_crops",
        "data.num_small_crops",
        "optimizer.lr",
        "optimizer.exclude_bias_n_norm_wd",
        "backbone.kwargs",
        "accumulate_grad_batches",
        "scheduler.lr_decay_steps",
        "scheduler.min_lr",
        "scheduler.warmup_epochs",
        "scheduler.warmup_start_lr",
        "scheduler.interval",
        "performance.disable_channel_last",
        "knn_eval.k",
    ):
        assert OmegaConf.select(parsed, key) == OmegaConf.select(expected, key), key
    assert parsed.optimizer.classifier_lr == pytest.approx(expected.optimizer.classifier_lr)
