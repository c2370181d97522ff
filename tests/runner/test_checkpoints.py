"""Checkpoints that are broken, cannot be written, or belong to what another process trains."""

import multiprocessing
import os
import resource
import signal
import time

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from simco_methods import files
from simco_methods.files import lock
from simco_methods.methods.simco import SimCo
from simco_methods.runner import saver
from simco_methods.runner.folder import RunFolder
from simco_methods.runner.recorder import Recorder
from simco_methods.runner.stopping import Interrupted, RunStopped
from simco_methods.runner.train import pretrain
from tests.runner.test_pretrain import quick, rows
from tests.runner.test_survival import (
    RECORDER,
    SAVER,
    everything,
    in_a_child,
    kill,
    told_at,
    trains_until,
)

SHORT = {"max_epochs": 3, "limit_train_batches": 2, "limit_val_batches": 1}


@pytest.fixture
def killed(tmp_path):
    """The folder of a run that was killed in its third epoch, and its config."""
    cfg = quick("digits/mocov2", tmp_path / "killed", **SHORT)
    kill(cfg, RECORDER, "on_train_epoch_start", 4)  # once when training starts
    folder = tmp_path / "killed" / "checkpoints"
    assert {path.name for path in folder.iterdir()} == {"last.ckpt", "previous.ckpt", "args.json"}
    return folder, cfg


def halved(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path):
    path.write_bytes(b"")


def damaged(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def removed(path):
    path.unlink()


@pytest.mark.parametrize("fault", [halved, emptied, damaged, removed])
def test_a_broken_checkpoint_falls_back_to_the_one_before(fault, killed, tmp_path, capfd):
    folder, cfg = killed
    straight = pretrain(quick("digits/mocov2", tmp_path / "straight", **SHORT))
    fault(folder / "last.ckpt")
    capfd.readouterr()
    again = pretrain(cfg)
    said = capfd.readouterr().out
    assert f"continues from {folder / 'previous.ckpt'}" in said
    if fault is not removed:
        assert f"note: {folder / 'last.ckpt'} is no checkpoint that simco-pretrain can" in said
        assert f"goes on from the one before, {folder / 'previous.ckpt'}" in said
    assert [row["epoch"] for row in rows(again)] == ["0", "1", "2"]
    one, other = everything(straight), everything(again)
    assert all(torch.equal(one["state_dict"][k], other["state_dict"][k]) for k in one["state_dict"])


def test_nothing_is_begun_anew_where_both_are_broken(killed):
    folder, cfg = killed
    for path in folder.glob("*.ckpt"):
        halved(path)
    with pytest.raises(ValueError, match=r"last\.ckpt is no(.|\n)*previous\.ckpt is no(.|\n)*anew"):
        pretrain(cfg)
    for path in folder.glob("*.ckpt"):
        path.unlink()
    assert len(rows(pretrain(cfg))) == 3


def test_a_run_that_is_started_anew_leaves_no_way_back_to_the_former(killed):
    folder, cfg = killed
    cfg.auto_resume.enabled = False
    kill(cfg, SAVER, "on_train_epoch_end", 1, True)
    assert [path.name for path in folder.glob("*.ckpt")] == ["last.ckpt"]


def trains_on_a_full_disk(cfg, limit, told):
    """As with room for files of ``limit`` bytes only; what the run says goes to ``told``."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        pretrain(cfg)
    except RunStopped as stop:
        told.write_text(str(stop))


def test_a_full_disk_leaves_the_last_checkpoint_whole(killed, tmp_path):
    folder, cfg = killed
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    told, limit = tmp_path / "told", len(before["last.ckpt"]) // 2
    assert in_a_child(trains_on_a_full_disk, cfg, limit, told) == 0
    assert f"the checkpoint cannot be written to {folder}" in told.read_text()
    assert "The one before is whole" in told.read_text()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert len(rows(pretrain(cfg))) == 3


def test_a_full_disk_stops_a_run_by_a_line_wherever_it_shows(tmp_path, monkeypatch):
    def write(self, *args, **kwargs):
        raise OSError(28, "No space left on device", "metrics.csv")

    monkeypatch.setattr(Recorder, "on_train_epoch_end", write)
    with pytest.raises(RunStopped, match="No space left on device: 'metrics.csv': no room on the"):
        pretrain(quick("digits/simco", tmp_path / "run", **SHORT))


@pytest.mark.parametrize(
    "error",
    [torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), MemoryError()],
)
def test_short_memory_stops_a_run_by_a_line_and_it_can_go_on(error, tmp_path, monkeypatch):
    cfg, step = quick("digits/simco", tmp_path / "run", **SHORT), SimCo.training_step

    def training_step(self, batch, batch_idx):
        if self.current_epoch == 1:
            raise error
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patched:
        patched.setattr(SimCo, "training_step", training_step)
        with pytest.raises(RunStopped, match=r"^out of memory \(.*optimizer.batch_size below 16"):
            pretrain(cfg)
    pretrain(cfg)
    assert len(rows(tmp_path / "run")) == 3


def test_a_folder_is_one_process_s_at_a_time(killed, capsys):
    folder, cfg = killed
    path = folder.parent / ".lock"
    descriptor = lock(path)
    with pytest.raises(ValueError, match=f"another process is training in {folder.parent}; wait"):
        pretrain(cfg)
    os.close(descriptor)
    pretrain(cfg)
    os.close(lock(path))  # given back
    assert "is finished: nothing is trained" in (pretrain(cfg), capsys.readouterr().out)[1]


def holds(path, taken, free):
    folder = RunFolder.__new__(RunFolder)
    folder.path = folder.checkpoints = path
    folder._lock = None
    folder.take()
    if not os.fork():
        time.sleep(20)  # a worker, which outlives the run
    taken.set()
    free.wait()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_of_a_killed_run_does_not_hold_its_folder(tmp_path):
    context = multiprocessing.get_context("forkserver")
    taken, free = context.Event(), context.Event()
    run = context.Process(target=holds, args=(tmp_path, taken, free))
    run.start()
    assert taken.wait(60) and lock(tmp_path / ".lock") is None
    free.set()
    run.join()
    descriptor = lock(tmp_path / ".lock")
    assert descriptor is not None
    os.close(descriptor)


def test_without_locks_a_run_says_so_and_goes_on(tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    pretrain(quick("digits/simco", tmp_path / "run", **{**SHORT, "max_epochs": 1}))
    assert "file system has no locks" in capsys.readouterr().out


def test_another_set_of_images_is_not_gone_on_with(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(10):
            pixels = generator.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    data = {"data__train_path": str(tmp_path / "images"), "optimizer__batch_size": 8}
    cfg = quick(
        "custom/simco", tmp_path / "run", augmentations__0__crop_size=16, max_epochs=2, **data
    )
    with monkeypatch.context() as patched:
        told_at(patched, signal.SIGTERM, 0)
        with pytest.raises(Interrupted):
            pretrain(cfg)
    os.rename(tmp_path / "images/a/3.png", tmp_path / "images/b/new.png")
    with pytest.raises(ValueError, match=r"images \(train\) are not those that the run"):
        pretrain(cfg)
    os.rename(tmp_path / "images/b/new.png", tmp_path / "images/a/3.png")
    assert len(rows(pretrain(cfg))) == 2


def curves(folder):
    """The points of TensorBoard's curves: [(name, step)], without times and rates of work."""
    events = EventAccumulator(str(folder / "tensorboard"), {"scalars": 0})
    events.Reload()
    names = events.Tags()["scalars"]
    return sorted(
        (name, point.step, point.value) for name in names for point in events.Scalars(name)
    )


def dies_with_points_on_disk(cfg):
    start = saver.Saver.on_train_batch_start

    def with_all_on_disk(self, trainer, *args):
        saver._flush(trainer)
        start(self, trainer, *args)

    saver.Saver.on_train_batch_start = with_all_on_disk
    trains_until(cfg, SAVER, "on_train_batch_start", 4)


def test_curves_have_each_point_once(tmp_path, monkeypatch):
    changes = {"max_epochs": 3, "limit_train_batches": 4, "limit_val_batches": 1}
    straight = pretrain(quick("digits/mocov2", tmp_path / "straight", **changes))
    cfg = quick("digits/mocov2", tmp_path / "run", **changes)
    assert in_a_child(dies_with_points_on_disk, cfg) == -signal.SIGKILL
    time.sleep(1)  # the second in which it is begun is in a file's name, by which they are read
    with monkeypatch.context() as patched:
        told_at(patched, signal.SIGTERM, 1)
        with pytest.raises(Interrupted):
            pretrain(cfg)
    time.sleep(1)
    assert in_a_child(dies_with_points_on_disk, cfg) == -signal.SIGKILL
    time.sleep(1)
    assert curves(pretrain(cfg)) == curves(straight)
