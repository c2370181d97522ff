"""Every registered method: what it forwards, trains, averages, keeps and logs."""

import copy

import lightning.pytorch as pl
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from simco_methods.host import LeanMomentumMethod
from simco_methods.methods import METHODS
from tests.helpers import MODULES, UNLABELLED, VARIANTS, batch, build, quiet_trainer

MOMENTUM = [v for v in VARIANTS if issubclass(METHODS[v[0]], LeanMomentumMethod)]
# Backbone forwards a step: (with gradient, of the momentum network). DESIGN: a forward costs F, its
# backward 2F, so SimCo costs 6F, the one-sided methods 4F, the symmetric ones 8F.
FORWARDS = {
    ("simco", False): (2, 0),
    ("simmoco", False): (1, 1),
    ("simmoco", True): (2, 2),
    ("mocov2", False): (1, 1),
    ("mocov2", True): (2, 2),
    ("decoupled_moco", False): (1, 1),
    ("decoupled_moco", True): (2, 2),
    ("simsiam_hardness", False): (2, 0),
    ("byol_hardness", False): (2, 2),
    ("supervised_hardness", False): (2, 0),
}
# Under which name a method logs its loss, if it is not a contrastive one.
LOGGED = {
    **dict.fromkeys(("simsiam_hardness", "byol_hardness"), "train_neg_cos_sim"),
    "supervised_hardness": "train_supervised_loss",
}


class Batches(pl.LightningDataModule):
    """The given training batches, as they are; the first one's images to validate on."""

    def __init__(self, batches, val=False):
        super().__init__()
        self.batches, self.val = batches, val

    def train_dataloader(self):
        return DataLoader(self.batches, batch_size=None)

    def val_dataloader(self):
        if not self.val:
            return []
        _, (view, _), targets = self.batches[0]
        return DataLoader([[view, targets]], batch_size=None)


def fit(model, batches, val=False, **options):
    run = quiet_trainer(**options)
    run.fit(model, datamodule=Batches(batches, val))
    return run


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_exactly_the_forwards_of_the_design(name, symmetric):
    model = build(name, symmetric)
    counts = {"online": 0, "momentum": 0}

    def count(which):
        def hook(module, inputs, output):
            counts[which] += 1
            assert output.requires_grad == (which == "online")

        return hook

    model.backbone.register_forward_hook(count("online"))
    if hasattr(model, "momentum_backbone"):
        model.momentum_backbone.register_forward_hook(count("momentum"))
    model.training_step(batch(), 0).backward()
    assert tuple(counts.values()) == FORWARDS[name, symmetric]


def test_the_rate_of_simsiam_s_predictor_stays():
    model = build("simsiam_hardness", max_epochs=1)
    run = fit(model, [batch(seed=s) for s in range(4)])
    rates = {group["name"]: group["lr"] for group in run.optimizers[0].param_groups}
    assert rates["predictor"] == model.lr
    assert rates["backbone"] == rates["projector"] < model.lr / 4


def test_simco_has_no_momentum_network():
    assert not [key for key in build("simco").state_dict() if "momentum" in key or "queue" in key]


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_every_trained_parameter_gets_a_gradient(name, symmetric):
    """So that DDP needs no find_unused_parameters, with labels or without."""
    for labelled in (True, False) if (name, symmetric) in UNLABELLED else (True,):
        model = build(name, symmetric, data__no_labels=not labelled)
        model.training_step(batch(labelled=labelled), 0).backward()
        for key, parameter in model.named_parameters():
            # SimSiam's last projector layer has a bias that the batch norm behind it takes away.
            frozen = "momentum" in key or (name, key) == ("simsiam_hardness", "projector.6.bias")
            assert parameter.requires_grad != frozen, key
            assert (parameter.grad is None) == frozen, key
        grouped = [p for group in model.learnable_params for p in group["params"]]
        trained = [p for p in model.parameters() if p.requires_grad]
        assert len(grouped) == len({id(p) for p in grouped})
        assert {id(p) for p in grouped} == {id(p) for p in trained}


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_trains_and_logs(name, symmetric):
    model = build(name, symmetric, knn_eval__enabled=True)
    before = copy.deepcopy(model.state_dict())
    run = fit(model, [batch(seed=s) for s in range(3)], val=True)
    metrics = {key: float(value) for key, value in run.callback_metrics.items()}
    for key in (
        LOGGED.get(name, "train_nce_loss"),
        "train_class_loss",
        "train_acc1",
        "train_acc5",
        "train_z_std",
        "train_effective_rank",
        "train_hardness",
        "train_hardness_std",
        "train_penalty_entropy",
        "val_loss",
        "val_acc1",
        "val_acc5",
        "val_knn_acc1",
        "val_knn_acc5",
    ):
        assert torch.isfinite(torch.tensor(metrics[key])), key
    assert 0 < metrics["train_hardness"] < 1 and 0 < metrics["train_penalty_entropy"] <= 1
    assert 0 < metrics["train_hardness_std"] < 0.5
    # Of 8 dimensions, or of the features of two views of 8 images.
    assert 1 <= metrics["train_effective_rank"] <= (16 if name == "supervised_hardness" else 8)
    assert len(metrics.keys() & {"train_nce_loss", *LOGGED.values()}) == 1
    moved = [k for k, v in model.state_dict().items() if not torch.equal(v, before[k])]
    for module in ("classifier", *MODULES.get(name, ["projector"])):
        assert any(k.startswith(module) for k in moved), module


@pytest.mark.parametrize("name, symmetric", UNLABELLED)
@pytest.mark.parametrize("known", [True, False], ids=["config says so", "batch only"])
def test_without_labels(name, symmetric, known):
    """The loss is finite and trained; accuracies are absent, not 0 and not NaN."""
    changes = {"data__no_labels": True, "data__num_classes": 1} if known else {}
    model = build(name, symmetric, knn_eval__enabled=True, **changes)
    before = copy.deepcopy(model.projector.state_dict())
    run = fit(model, [batch(seed=s, labelled=False) for s in range(2)])
    assert torch.isfinite(run.callback_metrics[LOGGED.get(name, "train_nce_loss")])
    assert not [k for k in run.callback_metrics if "acc" in k or "class_loss" in k]
    assert not torch.equal(before["0.weight"], model.projector[0].weight)
    if known:
        assert not list(model.classifier.parameters())


def test_partly_labelled_batches_count_the_labelled_only():
    model = build("simco")
    data = batch(8)
    data[2][:6] = -1
    logits = model(data[1][0])["logits"]
    out = model._base_shared_step(data[1][0], data[2])
    torch.testing.assert_close(
        out["loss"], torch.nn.functional.cross_entropy(logits[6:], data[2][6:])
    )
    hits = (logits[6:].argmax(1) == data[2][6:]).float().mean() * 100
    torch.testing.assert_close(out["acc1"].squeeze(), hits)


@pytest.mark.parametrize("classes", [2, 4, 5, 6])
def test_of_few_classes_no_top_5_is_logged(classes):
    """It would be 100 % whatever the classifier has learnt."""
    settings = {"data__num_classes": classes, "momentum__classifier": True}
    model = build("simmoco", knn_eval__enabled=True, **settings)
    data = batch()
    data[2] %= classes
    logged = fit(model, [data], val=True).callback_metrics
    top1 = {"train_acc1", "val_acc1", "val_knn_acc1", "train_momentum_acc1", "momentum_val_acc1"}
    assert top1 <= logged.keys()
    top5 = {key for key in logged if "acc5" in key and not key.endswith("_epoch")}
    assert top5 == ({key.replace("acc1", "acc5") for key in top1} if classes == 6 else set())


@pytest.mark.parametrize("name, symmetric", MOMENTUM)
@pytest.mark.parametrize("accumulate", [1, 4])
def test_ema_once_an_optimiser_step(name, symmetric, accumulate):
    """tau starts at base, never falls, ends at final; every parameter is averaged, in place."""
    model = build(
        name,
        symmetric,
        momentum__base_tau=0.5,
        momentum__final_tau=1.0,
        accumulate_grad_batches=accumulate,
        max_epochs=2,
    )
    pairs = [
        (online, momentum, momentum.data_ptr())
        for nets in model.momentum_pairs
        for online, momentum in zip(nets[0].parameters(), nets[1].parameters(), strict=True)
    ]
    assert sum(p.numel() for p in model.backbone.parameters()) < sum(o.numel() for o, *_ in pairs)
    taus, state = [], {}

    class Watch(pl.Callback):
        def on_train_batch_start(self, *_):
            state["before"] = [momentum.clone() for _, momentum, _ in pairs]
            state["step"] = run.global_step
            state["tau"] = model.momentum_updater.cur_tau

        def on_train_batch_end(self, *_):
            # Called before the model's own hook: look at the batch before this one instead.
            state["online"] = [online.detach().clone() for online, *_ in pairs]
            state["stepped"] = run.global_step > state["step"]

        def on_train_epoch_end(self, *_):
            self.check()

        def check(self):
            tau = state["tau"]
            for before, online, (_, momentum, pointer) in zip(
                state["before"], state["online"], pairs, strict=True
            ):
                expected = tau * before + (1 - tau) * online if state["stepped"] else before
                torch.testing.assert_close(momentum, expected)
                assert momentum.data_ptr() == pointer
            if state["stepped"]:
                taus.append(tau)

    watch = Watch()
    original = model.on_train_batch_end

    def after(*args):
        original(*args)
        watch.check()

    model.on_train_batch_end = after
    run = quiet_trainer(max_epochs=2, accumulate_grad_batches=accumulate)
    run.callbacks.append(watch)
    run.fit(model, datamodule=Batches([batch(seed=s) for s in range(8)]))
    assert taus[0] == 0.5 and taus == sorted(taus)
    assert model.momentum_updater.cur_tau == 1.0


def test_ema_waits_where_the_gradient_scaler_skips(monkeypatch):
    """float16: the scale falls when gradients overflow, and the step is not taken."""
    model = build("simmoco")
    scales = iter([8.0, 4.0, 4.0])
    run = quiet_trainer()
    monkeypatch.setattr(run.precision_plugin, "scaler", None, raising=False)
    run.precision_plugin.scaler = type("Scaler", (), {"get_scale": lambda self: next(scales)})()
    moved, update = [], model.momentum_updater.update_pairs
    model.momentum_updater.update_pairs = lambda pairs: (
        moved.append(run.global_step),
        update(pairs),
    )
    run.fit(model, datamodule=Batches([batch(seed=s) for s in range(3)]))
    assert moved == [1, 3]


def test_the_knn_bank_is_of_one_epoch():
    model = build("simco", knn_eval__enabled=True)
    fit(model, [batch(seed=s) for s in range(2)], max_epochs=3, limit_val_batches=0)
    assert sum(map(len, model.knn.train_features)) == 0  # nothing is validated: nothing is kept
    sizes, compute = [], model.knn.compute
    model.knn.compute = lambda: (sizes.append(sum(map(len, model.knn.train_features))), compute())[
        1
    ]
    fit(model, [batch(seed=s) for s in range(2)], val=True, max_epochs=4, check_val_every_n_epoch=2)
    assert sizes == [32, 32]


def test_queue_never_holds_the_keys_of_the_step_that_reads_it():
    model = build("mocov2", method_kwargs__queue_size=20)
    seen = []
    contrast = model.contrast

    def spy(query, key, side):
        distance = torch.cdist(key, model.queues[side].keys).min()
        seen.append((distance.item(), int(model.queues[side].filled.sum()), key))
        return contrast(query, key, side)

    model.contrast = spy
    fit(model, [batch(seed=s) for s in range(4)], val=True)
    assert [filled for _, filled, _ in seen] == [0, 8, 16, 20]
    assert all(distance > 1e-3 for distance, _, _ in seen)
    # 32 keys in: the last 20, across the wrap, and none of validation.
    expected = torch.cat([key for *_, key in seen])[-20:]
    queue = model.queues[0]
    torch.testing.assert_close(queue.keys.roll(-int(queue.pointer), 0), expected)
    assert queue.step == 4 and queue.ages().max() == 2


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_channels_last_changes_nothing(name, symmetric):
    losses = []
    for disable in (True, False):
        model = build(name, symmetric, performance={"disable_channel_last": disable})
        if not disable:
            model = model.to(memory_format=torch.channels_last)
        assert all(p.dtype == torch.float32 for p in model.parameters())
        losses.append(model.training_step(batch(), 0))
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)


class Conversions(TorchDispatchMode):
    """Counts the copies of images in another memory format."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        wanted = (kwargs or {}).get("memory_format") is torch.channels_last
        self.count += wanted and args[0].shape[1:] == (3, 16, 16)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_a_view_is_copied_once_for_all_networks(name, symmetric):
    model, data = build(name, symmetric), batch()
    with Conversions() as conversions:
        model.training_step(data, 0)
    assert conversions.count == 2
    data[1] = [view.to(memory_format=torch.channels_last) for view in data[1]]
    with Conversions() as conversions:
        model.training_step(data, 0)
    assert conversions.count == 0


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_the_loss_is_float32_under_autocast(name, symmetric):
    model = build(name, symmetric, momentum__classifier=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.backbone(batch()[1][0]).dtype == torch.bfloat16
        assert model.training_step(batch(), 0).dtype == torch.float32


def test_unknown_and_impossible_settings_are_named():
    for method, key, value, message in [
        ("simco", "temperature", 0.1, "tau_alpha"),
        ("simmoco", "dt_m", 10, "tau_beta = dt_m"),
        ("simco", "tau_alhpa", 0.1, "did you mean tau_alpha"),
        ("mocov2", "tau", 0, "above 0, got 0"),
        ("simco", "tau_beta", float("nan"), "tau_beta must be a finite number"),
        ("mocov2", "queue_size", 2.5, "queue_size must be a whole number above 0, got 2.5"),
        ("simmoco", "symmetric", 1, "symmetric must be true or false, got 1"),
        ("simco", "symmetric", True, "method_kwargs.symmetric is unknown to simco"),
    ]:
        with pytest.raises(ValueError, match=message):
            build(method, **{f"method_kwargs__{key}": value})
    with pytest.raises((ValueError, AssertionError)):
        build("simmoco", momentum__base_tau=1.5)


def test_number_of_views_is_checked():
    model, data = build("simco"), batch()
    data[1].append(data[1][0])
    with pytest.raises(ValueError, match="3 views, the augmentations give 2"):
        model.training_step(data, 0)
