"""What a run leaves behind: no memory, no process, thread, open file or temporary one."""

import contextlib
import gc
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensor

from simco_methods.data import ImageSet
from simco_methods.runner.train import prepare, pretrain
from tests.helpers import (
    group_members,
    processes,
    start_pretraining,
    wait_for_group_to_end,
)
from tests.runner.test_pretrain import quick

# tqdm's watchdog: one for the whole process.
OF_THE_PROCESS = ["tqdm_monitor"]
LEAVES = ["digits/simco", "digits/mocov2", "digits/decoupled_moco"]


def children():
    return [number for number, parent, _ in processes() if parent == os.getpid()]


def open_files():
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    # Fonts stay open, for the next figure.
    return sorted(name for name in found if not name.endswith((".ttf", ".afm")))


def tensors():
    """How many there are, and their bytes."""
    gc.collect()
    # Those of the meta device, and of what torch traces, have none.
    objects = (x for x in gc.get_objects() if issubclass(type(x), torch.Tensor))
    found = [x for x in objects if x.device.type == "cpu" and not isinstance(x, FakeTensor)]
    return len(found), sum({x.data_ptr(): x.untyped_storage().nbytes() for x in found}.values())


def logging_handlers():
    names = ("", "lightning", "lightning.pytorch", "lightning.fabric", "simco_methods")
    return [len(logging.getLogger(name).handlers) for name in names]


def resident_mib():
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.fixture
def temporary(monkeypatch):
    """The folder for temporary files, which is empty again in the end."""
    # Of a short name: it has to go into that of a socket, else a worker's batch is lost.
    folder = Path(tempfile.mkdtemp())
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    # That torch makes an empty folder for code that it compiles is its own way.
    left = [path.name for path in folder.iterdir() if not path.name.startswith("torchinductor")]
    shutil.rmtree(folder)
    assert left == []


@pytest.fixture
def left_behind(temporary):
    """Called: what there is of children, threads and open files that was not there at first.

    Threads that feed a queue of a loader's end a moment after it: five seconds are left to them.
    """

    def there():
        return children(), [thread.name for thread in threading.enumerate()], open_files()

    before = [*there()]
    before[1] += OF_THE_PROCESS

    def found():
        deadline = time.monotonic() + 5
        while True:
            now = [Counter(b) - Counter(a) for a, b in zip(before, there(), strict=True)]
            if not any(now) or time.monotonic() > deadline:
                return tuple(sorted(new) for new in now)
            time.sleep(0.05)

    return found


NOTHING = [], [], []


class Watch(pl.Callback):
    """Measures at the beginning of each epoch but the first two."""

    def __init__(self, measure):
        self.measure, self.seen = measure, []

    def on_train_epoch_start(self, trainer, module):
        # The first one makes the optimiser's momentum, the second one the last of the metrics.
        if trainer.current_epoch > 1:
            self.seen.append(self.measure())


def watched(leaf, folder, measure, **changes):
    """What was measured, epoch by epoch."""
    run, watch = prepare(quick(leaf, folder, **changes)), Watch(measure)
    run.trainer.callbacks.append(watch)
    run.fit()
    return watch.seen


@pytest.mark.parametrize("leaf", LEAVES)
def test_an_epoch_holds_no_more_than_the_one_before(leaf, tmp_path):
    changes = {"data__loader": "device", "max_epochs": 4, "limit_train_batches": 2}
    one, other = watched(leaf, tmp_path / "run", tensors, **changes)
    assert one == other


def test_runs_in_one_process_leave_nothing(tmp_path, left_behind):
    """As the jobs of a sweep."""
    handlers, after = logging_handlers(), []
    for number, loader in enumerate(["workers", "device", "workers", "device"]):
        changes = {"data__loader": loader, "data__num_workers": 2, "max_epochs": 1}
        pretrain(quick(LEAVES[number % 3], tmp_path / str(number), **changes))
        assert left_behind() == NOTHING
        if number > 1:
            after.append(tensors())
    assert after[0] == after[1]
    assert logging_handlers() == handlers


class Fault(RuntimeError):
    pass


class Raises(pl.Callback):
    def __init__(self, hook):
        setattr(self, hook, self.fail)

    def fail(self, trainer, *_):
        if trainer.current_epoch == 1:
            raise Fault


@pytest.mark.parametrize(
    "hook",
    ["on_validation_batch_end", pytest.param("on_train_batch_end", marks=pytest.mark.slow)],
)
def test_an_exception_leaves_nothing(hook, tmp_path, left_behind):
    run = prepare(quick(LEAVES[1], tmp_path / "run", data__loader="workers", data__num_workers=2))
    run.trainer.callbacks.append(Raises(hook))
    with pytest.raises(Fault):
        run.fit()
    del run
    gc.collect()
    assert left_behind() == NOTHING


def test_a_bad_image_in_a_worker_leaves_nothing(tmp_path, left_behind):
    paths = [str(tmp_path / f"{number}.png") for number in range(32)]
    for path in paths:
        Image.new("RGB", (16, 16)).save(path)
    images = ImageSet(paths, np.arange(32) % 10, [str(number) for number in range(10)])
    cfg = quick(LEAVES[0], tmp_path / "run", data__loader="workers", data__num_workers=2)
    run = prepare(cfg, (images, None))
    with open(paths[7], "wb") as file:  # while it trains
        file.write(b"nothing")
    with pytest.raises(Exception, match="7.png"):
        run.fit()
    del run
    gc.collect()
    assert left_behind() == NOTHING


# ---- as a command --------------------------------------------------------------------------------

ENDLESS = [
    "--config-name=digits/mocov2",
    "accelerator=cpu",
    "max_epochs=500",
    "limit_train_batches=3",
    "num_sanity_val_steps=0",
    "optimizer.batch_size=16",
    "knn_eval.offline=false",
    "output_dir=run",
    "data.loader=workers",
    "data.num_workers=2",
]


@pytest.mark.parametrize(
    "kind, whole_group, code",
    [
        pytest.param(signal.SIGINT, True, 130, id="Ctrl-C in a terminal"),
        pytest.param(signal.SIGINT, False, 130, id="SIGINT", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, True, 143, id="SIGTERM to all", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, False, -9, id="SIGKILL", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_command_takes_its_workers_with_it(
    kind, whole_group, code, tmp_path, temporary
):
    process = start_pretraining(tmp_path, *ENDLESS)
    try:
        for line in process.stdout:
            if line.startswith("epoch 2/"):
                break
        assert len(group_members(process.pid)) == 5  # two to train, two to validate
        (os.killpg if whole_group else os.kill)(process.pid, kind)
        _, errors = process.communicate(timeout=60)
        assert code in (None, process.returncode), errors
        assert "Traceback" not in errors
        # Workers of a killed process look every five seconds whether it is there.
        wait_for_group_to_end(process.pid, 20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()
    if kind == signal.SIGKILL:  # which leaves a library no time to remove its own
        for folder in temporary.glob("tmp*"):
            folder.rmdir()


# ---- memory over many steps ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("leaf, loader", zip(LEAVES, ("workers", "device", "device"), strict=True))
def test_memory_does_not_grow_over_2000_steps(leaf, loader, tmp_path, left_behind):
    """The resident memory after 500 steps and after 2,000, validation and kNN every 50."""
    seen = watched(
        leaf,
        tmp_path / "run",
        resident_mib,
        max_epochs=40,
        limit_train_batches=50,
        data__loader=loader,
        data__num_workers=1,
    )
    assert max(seen[28:]) - max(seen[:8]) < 8, seen
    assert left_behind() == NOTHING


@pytest.mark.slow
def test_wandb_leaves_nothing_but_its_service(tmp_path, left_behind, monkeypatch):
    """Which is one for all runs of a process, and ends with it."""
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    after = []
    for seed in (5, 6, 7):
        changes = {"wandb": {"enabled": True, "offline": True}, "max_epochs": 1, "seed": seed}
        pretrain(quick(LEAVES[0], tmp_path / str(seed), **changes))
        after.append([len(found) for found in left_behind()])
    assert after[0] == after[1] == after[2]
    wandb.teardown()
    assert left_behind() == NOTHING
