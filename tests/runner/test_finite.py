"""Losses and gradients that are not finite: the run stops and says so, or leaves the step out."""

import json
import signal

import pytest
import torch

from simco_methods.host.view_steps import ViewSteps
from simco_methods.runner.finite import FiniteGuard
from simco_methods.runner.stopping import RunStopped
from simco_methods.runner.train import pretrain
from tests.runner.test_pretrain import THEIRS, quick, rows, weights
from tests.runner.test_survival import told_at

SHORT = {"max_epochs": 2, "limit_train_batches": 4, "limit_val_batches": 1}


def spoil(monkeypatch, step, how):
    """Makes what the network gives in the ``step``-th training step, from 0, not finite."""
    forward, steps = ViewSteps.forward_views, []

    def spoilt(self, batch, *args, **kwargs):
        steps.append(1)
        if len(steps) - 1 == step and how == "images":
            for view in batch[1]:
                view.mul_(torch.inf)
        outs = forward(self, batch, *args, **kwargs)
        if len(steps) - 1 == step and how == "gradient":
            outs["z"][0].register_hook(lambda gradient: gradient * torch.nan)
        if len(steps) - 1 == step and how == "loss":
            outs["z"] = [z * torch.nan for z in outs["z"]]
        return outs

    monkeypatch.setattr(ViewSteps, "forward_views", spoilt)


@pytest.mark.parametrize(
    "how, what, cause",
    [
        ("gradient", "the gradient", "Most likely the learning rate is too high (optimizer.lr=0.0"),
        ("loss", "the loss", "Most likely the learning rate"),
        ("images", "the loss", "The images already are not: look at mean and std"),
    ],
)
def test_a_run_stops_before_a_step_that_is_not_finite(how, what, cause, tmp_path, monkeypatch):
    cfg = quick("digits/mocov2", tmp_path / "run", **SHORT)
    spoil(monkeypatch, 5, how)
    with pytest.raises(RunStopped) as stop:
        pretrain(cfg)
    assert str(stop.value).startswith(f"step 6 (epoch 2) of mocov2: {what} is not finite. {cause}")
    assert "on_nonfinite=skip leaves such steps out" in str(stop.value)
    state = torch.load(tmp_path / "run/checkpoints/nonfinite.ckpt", weights_only=True)
    assert state["global_step"] == 5
    named = [n for n, t in state["state_dict"].items() if n.endswith("weight")]
    assert all(state["state_dict"][name].isfinite().all() for name in named)
    assert len(rows(tmp_path / "run")) == 1
    assert torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)["epoch"] == 0


@pytest.mark.parametrize("leaf", ["digits/mocov2", "digits/simco", "digits/decoupled_moco"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_that_is_left_out_leaves_no_trace(leaf, accumulate, tmp_path, monkeypatch):
    changes = {**SHORT, "max_epochs": 1, "accumulate_grad_batches": accumulate}
    seen = []
    end = FiniteGuard.on_train_batch_start

    def look(self, trainer, module, *args):
        seen.append({name: value.clone() for name, value in module.state_dict().items()})
        end(self, trainer, module, *args)

    monkeypatch.setattr(FiniteGuard, "on_train_batch_start", look)
    spoil(monkeypatch, 1, "gradient")
    folder = pretrain(quick(leaf, tmp_path / "run", on_nonfinite="skip", **changes))
    before, after = seen[accumulate - 1 + (accumulate == 1)], seen[2]
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    # Batch statistics follow from the forward pass, which was a good one.
    assert not {n for n in moved if "running_" not in n and "num_batches" not in n}
    assert all(value.isfinite().all() for value in weights(folder).values())
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["steps_left_out"] == 1


def test_batch_statistics_that_are_spoilt_end_a_run_that_skips(tmp_path, monkeypatch):
    spoil(monkeypatch, 1, "images")
    cfg = quick("digits/simco", tmp_path / "run", on_nonfinite="skip", **SHORT)
    with pytest.raises(RunStopped, match="running_(mean|var) is not finite, so that nothing after"):
        pretrain(cfg)


@pytest.mark.parametrize("leaf", THEIRS[:1])
def test_solo_learn_s_own_methods_stop_and_do_not_skip(leaf, tmp_path):
    cfg = quick(leaf, tmp_path / "run", **SHORT, optimizer__lr=1e30)
    with pytest.raises(RunStopped, match="is not finite. Most likely the learning rate"):
        pretrain(cfg)
    cfg.on_nonfinite = "skip"
    with pytest.raises(ValueError, match="on_nonfinite=skip: solo-learn's own"):
        pretrain(cfg)


def test_on_a_gpu_nothing_that_is_not_finite_is_saved_by_a_signal(tmp_path, monkeypatch):
    monkeypatch.setattr(FiniteGuard, "_looks_at_each", lambda *_: False)
    spoil(monkeypatch, 5, "gradient")
    told_at(monkeypatch, signal.SIGTERM, 2)
    with pytest.raises(RunStopped, match="step 6 .epoch 2. of simco.*last.ckpt is from before"):
        pretrain(quick("digits/simco", tmp_path / "run", **SHORT, log_every_n_steps=100))
    assert all(value.isfinite().all() for value in weights(tmp_path / "run").values())


def test_on_a_gpu_it_is_looked_at_where_loggers_are_updated(tmp_path, monkeypatch):
    monkeypatch.setattr(FiniteGuard, "_looks_at_each", lambda *_: False)
    spoil(monkeypatch, 0, "gradient")
    cfg = quick("digits/simco", tmp_path / "run", **SHORT, log_every_n_steps=3)
    with pytest.raises(RunStopped, match="step 1 .epoch 1. of simco: loss or gradient is not fin"):
        pretrain(cfg)
    looked = torch.load(tmp_path / "run/checkpoints/nonfinite.ckpt", weights_only=True)
    assert looked["global_step"] == 3
