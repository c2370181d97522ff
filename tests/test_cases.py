"""Inputs on which libraries of this field have gone wrong, that no other test holds."""

import math

import pytest
import timm
import torch
import torchvision
from lightning.pytorch.plugins import MixedPrecision
from torch.utils.data import DataLoader

from simco_methods.data.loaders import EpochSampler, PretrainSet
from simco_methods.methods import METHODS
from tests.data.test_loaders import PAPER_VIEW, images, same, views_by_image
from tests.helpers import VARIANTS, batch, build, quiet_trainer
from tests.methods.test_methods import MOMENTUM, Batches, fit

# ---- weight decay --------------------------------------------------------------------------------


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_no_decay_on_vectors_and_the_probe_at_its_own_rate(name, symmetric):
    changes = {"optimizer__exclude_bias_n_norm_wd": True, "optimizer__classifier_lr": 0.7}
    if (name, symmetric) in MOMENTUM:
        changes["momentum__classifier"] = True
    model = build(name, symmetric, scheduler__name="none", **changes)
    run = fit(model, [batch()])
    groups = run.optimizers[0].param_groups
    places = {id(p): group for group in groups for p in group["params"]}
    trained = {key: p for key, p in model.named_parameters() if p.requires_grad}
    assert len(places) == sum(len(group["params"]) for group in groups) == len(trained)
    vectors = 0
    for key, parameter in trained.items():
        group = places[id(parameter)]
        probe = "classifier" in key
        assert group["lr"] == (0.7 if probe else 0.1), key
        assert group["weight_decay"] == (0 if probe or parameter.ndim <= 1 else 1e-4), key
        vectors += parameter.ndim <= 1
    assert vectors > 5


# ---- the EMA's coefficient -----------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("limit", [5, 0.5])
def test_tau_ends_at_its_final_value_in_an_epoch_that_is_cut_short(accumulate, limit):
    """Also where accumulation does not divide it: an update an optimiser step, none more."""
    changes = {"momentum__base_tau": 0.5, "momentum__final_tau": 1.0}
    model = build("simmoco", accumulate_grad_batches=accumulate, max_epochs=2, **changes)
    taus, update = [], model.momentum_updater.update_pairs
    model.momentum_updater.update_pairs = lambda pairs: (
        taus.append(model.momentum_updater.cur_tau),
        update(pairs),
    )
    options = {"accumulate_grad_batches": accumulate, "limit_train_batches": limit}
    run = fit(model, [batch(seed=seed) for seed in range(10)], max_epochs=2, **options)
    assert len(taus) == run.global_step == 2 * math.ceil(5 / accumulate)
    assert taus[0] == 0.5 and taus == sorted(set(taus))
    assert model.momentum_updater.cur_tau == 1.0


# ---- memory format and precision -----------------------------------------------------------------


def tensors(node, path=""):
    if isinstance(node, torch.Tensor):
        yield path, node
    elif isinstance(node, dict | list | tuple):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from tensors(child, f"{path}.{key}")


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_channels_last_trains_alike_and_nothing_is_float64(name, symmetric, tmp_path):
    """The momentum network, the queue and the optimiser's state included."""
    found = []
    for disable in (True, False):
        changes = {"performance": {"disable_channel_last": disable}, "optimizer__lr": 0.01}
        if (name, symmetric) in MOMENTUM:
            changes["momentum__base_tau"] = 0.5
        model = build(name, symmetric, **changes)
        if not disable:
            model = model.to(memory_format=torch.channels_last)
        # Two steps: this tiny network doubles a rounding error many times in more.
        run = fit(model, [batch(seed=seed) for seed in range(2)])
        run.save_checkpoint(tmp_path / "last.ckpt")
        checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
        for path, tensor in tensors(checkpoint):
            assert tensor.dtype != torch.float64, path
        found.append(checkpoint["state_dict"])
    assert found[0].keys() == found[1].keys()
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=1e-4, atol=1e-4, msg=key)


@pytest.mark.parametrize("name, symmetric", [("mocov2", True), ("simco", False)])
def test_a_step_whose_float16_gradients_overflow_moves_nothing(name, symmetric):
    """Weights, EMA and optimiser stay; tau and the rates go on with the count of steps."""
    model = build(name, symmetric, scheduler__warmup_epochs=0, max_epochs=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60, backoff_factor=2.0**-60)
    seen = []

    def note(*_):
        momentum = [k for k in model.state_dict() if "momentum" in k and "num_b" not in k]
        keys = [k for k, p in model.named_parameters() if p.requires_grad] + momentum
        state = model.state_dict()
        seen.append(
            (
                # Batch statistics are of the forward, which there was.
                {k: state[k].clone() for k in keys if "running" not in k},
                run.optimizers[0].param_groups[0]["lr"],
                getattr(getattr(model, "momentum_updater", None), "cur_tau", None),
                run.global_step,
            )
        )

    plugin = MixedPrecision(precision="16-mixed", device="cpu", scaler=scaler)
    run = quiet_trainer(plugins=[plugin])
    after = model.on_train_batch_end
    model.on_train_batch_end = lambda *args: (after(*args), note())
    model.on_train_start = lambda start=model.on_train_start: (start(), note())
    run.fit(model, datamodule=Batches([batch(seed=seed) for seed in range(4)]))
    (start, *_), (first, *_), (second, *_) = seen[:3]
    assert all(torch.equal(start[key], first[key]) for key in start)
    moved = [key for key in start if not torch.equal(first[key], second[key])]
    assert any(key.startswith("backbone") for key in moved)
    assert scaler.get_scale() == 1
    if "mocov2" in name:
        assert any(key.startswith("momentum_backbone") for key in moved)
    assert [step for *_, step in seen] == [0, 1, 2, 3, 4]
    rates = [0.05 * (1 + math.cos(math.pi * step / 4)) for step in range(5)]
    assert [lr for _, lr, _, _ in seen] == pytest.approx(rates)


# ---- views ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [True, False])
def test_four_workers_draw_unlike_each_other_and_unlike_the_epoch_before(persistent):
    def run():
        train = images(64, size=24, same=True)
        view = PAPER_VIEW.copy()
        view.update({"crop_size": 16, "num_crops": 2})
        loader = DataLoader(
            PretrainSet(train, "custom", [view], seed=5),
            sampler=EpochSampler(64, 8, seed=5),
            batch_size=8,
            num_workers=4,
            persistent_workers=persistent,
        )
        epochs = []
        for epoch in (0, 1):
            loader.sampler.set_epoch(epoch)
            epochs.append(views_by_image(loader))
        return epochs

    first, again = run(), run()
    assert all(same(one, other) for one, other in zip(first, again, strict=True))
    # 64 copies of one image, two views each, two epochs: no view is another one.
    views = torch.cat([torch.cat([epoch[i] for i in range(64)]) for epoch in first]).flatten(1)
    assert len(views) == 256 and len(views.unique(dim=0)) == 256


# ---- weights elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "backbone, other",
    [
        ({"name": "resnet18"}, lambda: torchvision.models.resnet18()),
        (
            {"name": "vit_tiny", "kwargs": {"img_size": 32, "patch_size": 8}},
            lambda: timm.create_model(
                "vit_tiny_patch16_224", img_size=32, patch_size=8, num_classes=0
            ),
        ),
    ],
    ids=["torchvision", "timm"],
)
def test_a_backbone_is_torchvision_s_or_timm_s_by_the_same_names(backbone, other):
    """Without its head it loads strictly and gives the same features."""
    changes = {"data__dataset": "imagenet100", "performance": {"disable_channel_last": True}}
    model = build("simco", backbone=backbone, **changes).eval()
    prefix = "backbone."
    state = {k[len(prefix) :]: v for k, v in model.state_dict().items() if k.startswith(prefix)}
    plain = other().eval()
    if hasattr(plain, "fc"):
        plain.fc = torch.nn.Identity()
    plain.load_state_dict(state, strict=True)
    pictures = batch(4, size=32)[1][0]
    with torch.no_grad():
        expected, found = plain(pictures), model(pictures)["feats"]
    assert expected.std() > 0
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_every_method_is_among_the_cases():
    assert {name for name, _ in VARIANTS} == set(METHODS)
