"""The bar of a training: what it shows, when, and that nothing waits for it."""

import re
from types import SimpleNamespace

import pytest
import torch

from simco_methods.runner import bar
from simco_methods.runner.bar import TrainingBar, faster_on_cpu
from simco_methods.runner.train import prepare
from tests.helpers import build
from tests.runner.test_pretrain import quick
from tests.test_progress import Terminal


class Loss:
    """A value on a device, which is waited for where it is read."""

    reads = 0

    def __float__(self):
        Loss.reads += 1
        return 5.12345


class Run:
    """100 epochs of 390 batches of 64 images, on two processes, as a trainer tells of them."""

    def __init__(self, monkeypatch, epochs=100, on="cuda"):
        self.now = 1000.0
        monkeypatch.setattr(bar, "time", SimpleNamespace(monotonic=lambda: self.now))
        batches = SimpleNamespace(current=SimpleNamespace(ready=0, completed=0))
        progress = SimpleNamespace(current=SimpleNamespace(ready=0, processed=0))
        loop = SimpleNamespace(batch_progress=batches)
        self.trainer = SimpleNamespace(
            max_epochs=epochs,
            current_epoch=0,
            num_training_batches=390,
            num_val_batches=[79],
            world_size=2,
            sanity_checking=False,
            fit_loop=SimpleNamespace(epoch_loop=loop, epoch_progress=progress),
        )
        self.model = SimpleNamespace(
            cfg=SimpleNamespace(optimizer=SimpleNamespace(batch_size=64)),
            device=torch.device(on),
            step_values={"train_nce_loss_step": Loss(), "tau": 0.99},
        )
        self.bar = TrainingBar()
        self.bar.on_train_start(self.trainer, self.model)
        self.bar.on_train_epoch_start(self.trainer, self.model)

    def batches(self, count, seconds):
        current = self.trainer.fit_loop.epoch_loop.batch_progress.current
        for number in range(count):
            self.now += seconds
            current.ready += 1
            self.bar.on_train_batch_end(self.trainer, self.model, {}, None, number)


def test_without_a_terminal_there_is_a_line_every_half_minute(monkeypatch, capfd):
    run, Loss.reads = Run(monkeypatch), 0
    run.batches(1, 45)  # of a compiler
    run.batches(37, 2)
    run.now += 60
    run.bar.on_validation_batch_end(run.trainer, run.model, None, None, 11)
    run.bar.on_validation_batch_end(run.trainer, run.model, None, None, 12)
    out, err = capfd.readouterr()
    assert err == "" and out.splitlines() == [
        "epoch 1/100, 1/390 batches, loss 5.1235",
        "  about 21.7 h to the end of the run, at 64 images/s, without validation",
        "epoch 1/100, 16/390 batches, loss 5.1235, 64 images/s, 21.7 h left",
        "epoch 1/100, 31/390 batches, loss 5.1235, 64 images/s, 21.6 h left",
        # What validating takes counts, too.
        "epoch 1/100, validation 12/79 batches, 39.2 h left",
    ]
    assert Loss.reads == 3


def test_a_terminal_has_a_bar_of_the_whole_run(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    run, Loss.reads = Run(monkeypatch, epochs=2), 0
    run.batches(78, 0.125)
    assert Loss.reads <= 78 * 0.125 / 0.5 + 1  # twice a second
    drawn = terminal.getvalue().split("\r")
    assert "  0%|          | epoch 1/2, first batch" in drawn[1]
    assert "epoch 1/2, 76/390 batches, loss 5.1235, 1024 images/s, 88 s left" in drawn[-1]
    assert drawn[-1].startswith(" 10%|")  # of the run, not of the epoch
    run.bar.on_train_end(run.trainer, run.model)
    assert "\n" not in terminal.getvalue()


def test_a_short_run_is_not_estimated(monkeypatch, capfd):
    Run(monkeypatch, epochs=1).batches(60, 0.1)
    assert capfd.readouterr() == ("", "")


def test_a_long_run_on_a_cpu_says_what_would_be_faster(monkeypatch, capfd):
    monkeypatch.setattr(bar, "faster_on_cpu", lambda model: "a smaller network")
    Run(monkeypatch, on="cpu").batches(6, 2)
    assert capfd.readouterr().out.splitlines() == [
        "  about 21.7 h to the end of the run, at 64 images/s, without validation",
        "  note: that is long; faster: a smaller network",
    ]
    Run(monkeypatch, epochs=1, on="cpu").batches(6, 2)
    assert "note" not in capfd.readouterr().out


def test_what_would_be_faster_is_measured_and_changes_nothing():
    model = build("simco", backbone={"name": "resnet18", "kwargs": {}})
    model.cfg.augmentations = [{"crop_size": 96}]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    said = faster_on_cpu(model)
    assert "augmentations=crop64 (about " in said and "a GPU" in said
    assert f"fewer epochs (max_epochs={model.cfg.max_epochs})" in said
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("asked", [None, True, False])
def test_it_can_be_turned_off_and_is_the_first_process_s(asked, rank, tmp_path, monkeypatch):
    monkeypatch.setattr("simco_methods.runner.trainer.process_rank", lambda: rank)
    cfg = quick("digits/simco", tmp_path / "run", enable_progress_bar=asked)
    run = prepare(cfg)
    run.folder.leave()
    bars = [each for each in run.trainer.callbacks if isinstance(each, TrainingBar)]
    assert len(bars) == (asked is not False and rank == 0)


def test_a_run_shows_its_steps_and_epochs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bar, "LINE_SECONDS", 0.0)
    run = prepare(quick("digits/simco", tmp_path / "run", max_epochs=2))
    run.fit()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert [re.match("epoch [^a-z]*(validation [^ ]*)?", line)[0].rstrip() for line in lines] == [
        *("epoch 1/2, 1/3", "epoch 1/2, 2/3", "epoch 1/2, 3/3"),
        *("epoch 1/2, validation 1/2", "epoch 1/2, validation 2/2", "epoch 1/2:"),
        *("epoch 2/2, 1/3", "epoch 2/2, 2/3", "epoch 2/2, 3/3"),
        *("epoch 2/2, validation 1/2", "epoch 2/2, validation 2/2", "epoch 2/2:"),
    ]
    assert re.fullmatch(r".*batches, loss \d+\.\d{4}, \d+ images/s, \d+ s left", lines[2])
