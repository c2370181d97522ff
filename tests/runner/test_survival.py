"""Runs that are killed, told to end, or out of room, and started again by the same command."""

import multiprocessing
import os
import pkgutil
import signal

import pytest
import torch

from simco_methods import compiling
from simco_methods.runner.recorder import Recorder
from simco_methods.runner.stopping import Interrupted
from simco_methods.runner.train import pretrain
from tests.runner.test_pretrain import OURS, THEIRS, quick, rows, weights

SAVER, RECORDER = "simco_methods.runner.saver:Saver", "simco_methods.runner.recorder:Recorder"
# Batches of the three epochs: 6 each; of the validation: 2.
LONGER = {"max_epochs": 3, "limit_train_batches": 6}


def in_a_child(work, *arguments):
    """Calls ``work`` in a process of its own; returns its exit code, below 0 for a signal's."""
    # Not a fork of this process: torch's threads, if it has any, would be missing there.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["simco_methods.runner.train", "tests.runner.test_survival"])
    child = context.Process(target=_forking, args=(work, *arguments))
    child.start()
    child.join()
    return child.exitcode


def _forking(work, *arguments):
    # As in a run that a user starts. The workers that this server would give outlive a kill.
    multiprocessing.set_start_method("fork", force=True)
    work(*arguments)


def die_at(owner, name, count, after=False):
    """Kills this process by SIGKILL at the ``count``-th call of ``owner.name``, or after it."""
    owner = pkgutil.resolve_name(owner)
    original, calls = getattr(owner, name), []

    def counted(*args, **kwargs):
        calls.append(1)
        if len(calls) == count and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)


def trains_until(cfg, *point):
    die_at(*point)
    pretrain(cfg)


def kill(cfg, *point):
    """A run of ``cfg`` in a process of its own that dies as :func:`die_at` says."""
    assert in_a_child(trains_until, cfg, *point) == -signal.SIGKILL


def told_at(patched, signum, batch, epoch=1):
    """Sends this process a signal while it is in a batch."""
    start = Recorder.on_train_batch_start

    def counted(self, trainer, module, *args):
        if (trainer.current_epoch, args[-1]) == (epoch, batch):
            os.kill(os.getpid(), signum)
        start(self, trainer, module, *args)

    patched.setattr(Recorder, "on_train_batch_start", counted)


def differences(one, other):
    """What differs in two nests of containers, numbers and tensors, by path."""
    if isinstance(one, dict):
        keys = one.keys() | other.keys()
        pairs = [(key, one.get(key, "none"), other.get(key, "none")) for key in keys]
    elif isinstance(one, list | tuple):
        pairs = [(i, a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, torch.Tensor):
        return [] if torch.equal(one, other) else ["."]
    else:
        return [] if one == other or (one != one and other != other) else ["."]
    return [f"{key}/{path}" for key, a, b in pairs for path in differences(a, b)]


def everything(folder):
    """All that a checkpoint holds but times and places: weights, queue, optimiser, loops, random
    state, history; and the rows of metrics.csv."""
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    del checkpoint["simco_methods"]["config"]
    recorder = next(state for key, state in checkpoint["callbacks"].items() if "Recorder" in key)
    for name in ("seconds", "elapsed"):
        del recorder[name]
    table = rows(folder)
    for row in [*recorder["history"], *table]:
        del row["seconds"], row["images_per_second"]
    # Lightning counts the batches that it has asked for, of which one may have been thrown away.
    checkpoint.pop("loops")
    return {**checkpoint, "rows": table}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """What :func:`everything` gives of a leaf's run that nothing disturbs, made once."""
    made = {}

    def of(leaf):
        if leaf not in made:
            folder = tmp_path_factory.mktemp("straight") / "run"
            made[leaf] = everything(pretrain(quick(leaf, folder, **LONGER, **settings(leaf))))
        return made[leaf]

    return of


def ends_alike(cfg, expected):
    folder = pretrain(cfg)
    assert not differences(expected, everything(folder))
    assert not list(folder.rglob("*.part")) and not list(folder.rglob("previous.ckpt"))


def settings(leaf):
    """Unlike from leaf to leaf, so that all loaders, workers and accumulations have their turn."""
    number = OURS.index(leaf)
    changes = {"data__loader": ("device", "workers")[number % 2], "data__num_workers": number % 2}
    return {**changes, "accumulate_grad_batches": 1 + number // 2 % 2}


@pytest.mark.parametrize("leaf", OURS)
def test_a_run_that_was_told_to_end_goes_on_in_the_middle_of_its_epoch(
    leaf, straight, tmp_path, monkeypatch
):
    cfg = quick(leaf, tmp_path / "told", **LONGER, **settings(leaf))
    for signum, epoch, batch in ((signal.SIGTERM, 0, 0), (signal.SIGUSR1, 1, 2)):
        with monkeypatch.context() as patched:
            told_at(patched, signum, batch, epoch)
            with pytest.raises(Interrupted, match="the same command continues") as stop:
                pretrain(cfg)
        assert stop.value.code == 128 + signum
        kept = torch.load(tmp_path / "told/checkpoints/last.ckpt", weights_only=True)
        done = batch + cfg.accumulate_grad_batches
        assert kept["PretrainData"] == {"next_epoch": epoch, "next_batch": done}
    ends_alike(cfg, straight(leaf))


POINTS = {
    "between steps": (SAVER, "on_train_batch_start", 9),
    "in a step": ("simco_methods.host.view_steps:ViewSteps", "forward_views", 16),
    "in validation": ("simco_methods.host.view_steps:ViewSteps", "validation_step", 3),
    "before it saves": (SAVER, "on_train_epoch_end", 2),
    "while it saves": ("torch", "save", 2),
    "between its two files": ("os", "replace", 7),
    "after it has saved": (SAVER, "on_train_epoch_end", 2, True),
    "at the end": (RECORDER, "on_train_end", 1),
}
CASES = [(leaf, point) for leaf in OURS for point in POINTS]


@pytest.mark.parametrize(
    "leaf, point",
    [
        pytest.param(*case, marks=[] if case[0] == "digits/mocov2" else pytest.mark.slow)
        for case in CASES
    ],
)
def test_a_run_that_was_killed_ends_as_one_that_was_not(leaf, point, straight, tmp_path):
    cfg = quick(leaf, tmp_path / "killed", **LONGER, **settings(leaf))
    kill(cfg, *POINTS[point])
    assert (tmp_path / "killed/config.yaml").exists()
    ends_alike(cfg, straight(leaf))


def test_an_extended_run_that_was_stopped_goes_on_from_its_own_checkpoint(
    tmp_path, monkeypatch, capsys
):
    changes = {"limit_train_batches": 2, "limit_val_batches": 1}
    first = pretrain(quick("digits/simco", tmp_path / "first", **changes, max_epochs=1))
    named = str(first / "checkpoints/last.ckpt")
    cfg = quick("digits/simco", tmp_path / "longer", **changes, max_epochs=3)
    cfg.resume_from_checkpoint = named
    with monkeypatch.context() as patched:
        told_at(patched, signal.SIGTERM, 0, epoch=2)
        with pytest.raises(Interrupted):
            pretrain(cfg)
    assert f"continues from {named}" in capsys.readouterr().out
    assert [row["epoch"] for row in rows(pretrain(cfg))] == ["0", "1", "2"]
    own = tmp_path / "longer/checkpoints/last.ckpt"
    assert f"continues from {own}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "key, said",
    [
        ("checkpoint", "nothing was saved, by checkpoint.enabled=false"),
        ("auto_resume", "with auto_resume.enabled=true it continues"),
    ],
)
def test_what_is_said_of_an_end_is_true(key, said, tmp_path, monkeypatch):
    cfg = quick("digits/simco", tmp_path / "run", **LONGER)
    cfg[key] = {"enabled": False}
    told_at(monkeypatch, signal.SIGTERM, 0, epoch=0)
    with pytest.raises(Interrupted, match=said):
        pretrain(cfg)


def test_a_signal_before_the_first_step_ends_after_it(tmp_path, monkeypatch):
    start = Recorder.on_sanity_check_start
    monkeypatch.setattr(
        Recorder,
        "on_sanity_check_start",
        lambda *args: (os.kill(os.getpid(), signal.SIGTERM), start(*args)),
    )
    with pytest.raises(Interrupted) as stop:
        pretrain(quick("digits/simco", tmp_path / "run", **LONGER, num_sanity_val_steps=1))
    assert stop.value.code == 143
    kept = torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)
    assert kept["PretrainData"] == {"next_epoch": 0, "next_batch": 1}


def test_a_second_ctrl_c_ends_at_once(tmp_path, monkeypatch, capsys):
    told_at(monkeypatch, signal.SIGINT, 2)
    told_at(monkeypatch, signal.SIGINT, 2)
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(Interrupted, match="interrupted; the same command") as stop:
            pretrain(quick("digits/simco", tmp_path / "run", **LONGER))
    finally:
        signal.signal(signal.SIGINT, former)
    assert stop.value.code == 130
    assert "once more ends at once" in capsys.readouterr().out
    kept = torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)
    assert kept["PretrainData"] == {"next_epoch": 1, "next_batch": 0}


def test_compiled_or_not_a_run_goes_on_in_the_middle_of_its_epoch(
    straight, tmp_path, monkeypatch, capsys
):
    def traced(function, device):
        return torch.compile(function, dynamic=False, backend="aot_eager")

    monkeypatch.setattr(compiling, "compiled", traced)
    cfg = quick("digits/simmoco", tmp_path / "run", **LONGER, **settings("digits/simmoco"))
    cfg.performance.compile = True
    with monkeypatch.context() as patched:
        told_at(patched, signal.SIGTERM, 2)
        with pytest.raises(Interrupted):
            pretrain(cfg)
    cfg.performance.compile = False
    pretrain(cfg)
    assert "(performance.compile=true)" in capsys.readouterr().out
    one = straight("digits/simmoco")["rows"][-1]
    other = rows(tmp_path / "run")[-1]
    assert float(other["train_nce_loss"]) == pytest.approx(float(one["train_nce_loss"]), rel=1e-4)


def test_a_killed_run_keeps_its_run_of_wandb(tmp_path, wandb):
    cfg = quick("digits/simco", tmp_path / "run", max_epochs=1, log_every_n_steps=1)
    cfg.wandb = {"enabled": True, "offline": True, "project": "test"}
    kill(cfg, SAVER, "on_train_batch_start", 2)
    pretrain(cfg)
    names = [path.name for path in (tmp_path / "run/wandb").glob("offline-run-*")]
    ids = {name.split("-", 3)[-1] for name in names}
    assert len(names) == 2 and len(ids) == 1 and ids.pop().startswith("simco-digits-")


@pytest.mark.parametrize("leaf", THEIRS)
def test_solo_learn_s_own_methods_go_on_from_their_last_epoch(leaf, tmp_path, monkeypatch):
    changes = {**LONGER, "accumulate_grad_batches": 2}
    expected = weights(pretrain(quick(leaf, tmp_path / "straight", **changes)))
    cfg = quick(leaf, tmp_path / "run", **changes)
    with monkeypatch.context() as patched:
        told_at(patched, signal.SIGTERM, 2)
        with pytest.raises(Interrupted):
            pretrain(cfg)
    kept = torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)
    assert kept["PretrainData"] == {"next_epoch": 1, "next_batch": 0}
    assert not differences(expected, weights(pretrain(cfg)))
