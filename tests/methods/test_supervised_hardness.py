"""Supervised training with changed anchor weights: what it needs, logs and leaves alone."""

import copy

import pytest
import torch
from torch.utils.data import DataLoader

from simco_methods.config.parse import complete
from simco_methods.losses import weighted_cross_entropy_loss
from tests.helpers import batch, build, compose_config, quiet_trainer

EQUAL = {"method_kwargs__equal_weight": True}
SOFT = {"method_kwargs__tau_beta": 5.0}


def fit(batches, **changes):
    model, run = build("supervised_hardness", **changes), quiet_trainer()
    run.fit(model, DataLoader(batches, batch_size=None))
    return {key: float(value) for key, value in run.callback_metrics.items()}


@pytest.mark.parametrize("changes", [EQUAL, SOFT], ids=["equal", "softened"])
def test_the_settings_reach_the_loss(changes):
    model = build("supervised_hardness", **changes)
    _, views, targets = batch()
    total = model.training_step([None, views, targets], 0)
    outs = [copy.deepcopy(model)(view) for view in views]
    settings = {key.removeprefix("method_kwargs__"): value for key, value in changes.items()}
    logits = torch.cat([model.head(out["feats"]) for out in outs])
    loss = weighted_cross_entropy_loss(logits, targets.repeat(2), **settings)
    probe = sum(torch.nn.functional.cross_entropy(out["logits"], targets) for out in outs) / 2
    torch.testing.assert_close(total, loss + probe)
    plain = torch.nn.functional.cross_entropy(logits, targets.repeat(2))
    assert (loss - plain).abs() > 1e-3


def test_equal_weights_are_logged_as_an_even_share_of_the_same_hardness():
    natural, equal = fit([batch()]), fit([batch()], **EQUAL)
    assert equal["train_penalty_entropy"] == pytest.approx(1, abs=1e-6)
    assert natural["train_penalty_entropy"] < 0.9999
    for key in ("train_hardness", "train_hardness_std"):
        assert equal[key] == pytest.approx(natural[key], rel=1e-5)


@pytest.mark.parametrize("changes", [{}, EQUAL], ids=["natural", "equal"])
def test_a_batch_without_labels_trains_nothing_and_counts_for_nothing(changes):
    model = build("supervised_hardness", **changes)
    model.training_step(batch(labelled=False), 0).backward()
    assert not any(p.grad.any() for p in model.parameters())
    metrics = fit([batch(), batch(labelled=False)], **changes, optimizer__lr=0.0)
    alone = fit([batch()], **changes, optimizer__lr=0.0)
    for key in ("train_supervised_loss", "train_hardness", "train_penalty_entropy"):
        assert metrics[key] == pytest.approx(alone[key], rel=1e-5), key
    assert not {"train_supervised_loss", "train_hardness"} & fit([batch(labelled=False)]).keys()


@pytest.mark.parametrize(
    "changes, got",
    [
        ({"data__no_labels": True}, "data.no_labels=True, data.num_classes=10"),
        ({"data__num_classes": 1}, "data.no_labels=False, data.num_classes=1"),
    ],
)
def test_data_without_labels_are_refused(changes, got):
    with pytest.raises(ValueError, match=f"labels of at least 2 classes, got {got}"):
        build("supervised_hardness", **changes)


def test_the_runner_refuses_them_before_it_reads_any_data():
    with pytest.raises(ValueError, match="supervised_hardness trains on labels"):
        complete(compose_config("digits/supervised_hardness", "+data.no_labels=true"))


@pytest.mark.parametrize(
    "method, key, value, message",
    [
        ("supervised_hardness", "proj_output_dim", 128, "proj_output_dim is unknown to supervised"),
        ("supervised_hardness", "equal_weight", 1, "equal_weight must be true or false, got 1"),
        ("simsiam_hardness", "weighted", "no", "weighted must be true or false, got 'no'"),
        ("byol_hardness", "pred_hidden_dim", 0, "pred_hidden_dim must be a whole number above 0"),
        ("byol_hardness", "symmetric", True, "symmetric is unknown to byol_hardness"),
        ("simsiam_hardness", "tau_bta", 1, "unknown to simsiam_hardness; did you mean tau_beta"),
    ],
)
def test_bad_settings_are_named(method, key, value, message):
    with pytest.raises(ValueError, match=message):
        build(method, **{f"method_kwargs__{key}": value})
