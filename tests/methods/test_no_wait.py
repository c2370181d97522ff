"""A training step does not wait for the device, but where something is logged.

On a CPU nothing waits; what would on a GPU is seen among the operations: a number or a count that
is read back, a tensor that is made of numbers of Python. On a pretended GPU, of tensors without
content, nothing can be read back at all, and copies to it are seen.
"""

from traceback import extract_stack
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from simco_methods.host import LeanMomentumMethod
from simco_methods.methods import METHODS
from tests.helpers import VARIANTS, batch, build, quiet_trainer
from tests.methods.test_methods import Batches

READ_BACK = {
    "_local_scalar_dense",
    "_unique2",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
    "lift_fresh",  # of torch.tensor and torch.as_tensor: a copy that is waited for
}
# Functions that look at the numbers of CPU tensors only.
ON_CPU = {"_split_classes"}
EVERY, BATCHES, EPOCHS = 5, 8, 2


def waits(func, args):
    name = func.overloadpacket.__name__
    if name.startswith(("index", "_index_put", "_unsafe_index")) and isinstance(args[1], list):
        masks = (torch.bool, torch.uint8)
        return any(index is not None and index.dtype in masks for index in args[1])
    return name in READ_BACK


class Waits(TorchDispatchMode):
    """Collects in ``seen`` what would wait on a GPU."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if waits(func, args) and not ON_CPU & {frame.name for frame in extract_stack()}:
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def watch(model, start, stop):
    """Has ``start(batch)`` called before each step, and ``stop(batch)`` when all of it is done."""
    step, end = model.training_step, model.on_train_batch_end

    def training_step(batch, batch_idx):
        start(batch_idx)
        return step(batch, batch_idx)

    def on_train_batch_end(outputs, batch, batch_idx):
        end(outputs, batch, batch_idx)
        stop(batch_idx)

    model.training_step, model.on_train_batch_end = training_step, on_train_batch_end


def logged_at(epoch, batch_idx):
    """Whether diagnostics are computed in this step, or the loggers updated after it."""
    return batch_idx % EVERY == 0 or (epoch * BATCHES + batch_idx + 1) % EVERY == 0


def make(name, symmetric, **changes):
    settings = {"knn_eval__enabled": True, "max_epochs": EPOCHS, **changes}
    if issubclass(METHODS[name], LeanMomentumMethod):
        settings["momentum__classifier"] = True
    data = [batch(seed=seed) for seed in range(BATCHES)]
    for _, _, targets in data:
        targets[::3] = -1
    return build(name, symmetric, **settings), data


def fit(model, data, **options):
    run = quiet_trainer(max_epochs=EPOCHS, log_every_n_steps=EVERY, **options)
    model.__dict__["run"] = run
    run.fit(model, datamodule=Batches(data, val=True))


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_a_step_reads_nothing_back(name, symmetric):
    model, data = make(name, symmetric)
    modes, steps = [], {}

    def start(_):
        modes.append(Waits())
        modes[-1].__enter__()

    def stop(batch_idx):
        modes[-1].__exit__(None, None, None)
        steps[model.run.current_epoch, batch_idx] = modes[-1].seen

    watch(model, start, stop)
    fit(model, data)
    quiet = {step for step in steps if not logged_at(*step)}
    assert len(steps) == EPOCHS * BATCHES and len(quiet) > len(steps) / 2
    assert not {step: steps[step] for step in quiet if steps[step]}
    assert any(steps[step] for step in steps if step not in quiet)  # so that it is seen


def test_what_waits_is_seen():
    rows, mask = torch.randn(4, 2), torch.tensor([True, False, True, False])
    for wait in (
        lambda: rows[mask],
        lambda: rows[mask.nonzero()],
        lambda: rows.masked_select(mask.unsqueeze(1)),
        lambda: rows.__setitem__(mask, rows[:2].clone()),
        lambda: float(rows[0, 0]),
        lambda: bool(mask.all()),
        lambda: torch.equal(rows, rows.clone()),
        lambda: mask.unique(),
        lambda: torch.as_tensor(1.0),
        lambda: torch.tensor(0.5),
    ):
        with Waits() as mode:
            wait()
        assert mode.seen
    with Waits() as mode:
        torch.where(mask, rows[:, 0] * 2, 0.0)
        rows[torch.arange(2)], torch.full((), 1.0), rows.index_fill_(0, torch.arange(2), 0.0)
    assert not mode.seen


class Copies(TorchDispatchMode):
    """Collects in ``seen`` the copies between devices that are waited for."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
        copied = func.overloadpacket.__name__ in ("_to_copy", "copy_", "lift_fresh")
        if copied and len({x.device.type for x in tensors}) > 1 and not kwargs.get("non_blocking"):
            self.seen.append(str(func))
        return out


# Draws on the CPU for the GPU.
RANDOM = {f"method_kwargs__{name}": {"order": "random", "size": 6} for name in ("vector", "scalar")}
EARLIEST = {"method_kwargs__vector": {"order": "earliest", "size": 6}}


@pytest.mark.parametrize(
    "name, symmetric, changes",
    [(*variant, {}) for variant in VARIANTS]
    + [("decoupled_moco", False, changes) for changes in (RANDOM, EARLIEST)],
)
def test_a_step_on_a_pretended_gpu(name, symmetric, changes, monkeypatch):
    """But for its backward, which torch does not pretend."""
    with FakeTensorMode():
        with torch.device("cuda"):
            model, data = make(name, symmetric, **changes)
        indices, views, targets = data[0]
        data = [indices.cuda(), [view.cuda() for view in views], targets.cuda()]
        run = SimpleNamespace(
            current_epoch=0,
            estimated_stepping_batches=10,
            fast_dev_run=False,
            global_step=1,
            log_every_n_steps=EVERY,
            precision_plugin=None,
            _logger_connector=SimpleNamespace(should_update_logs=False),
        )
        model.__dict__["_trainer"] = run
        monkeypatch.setattr(type(model), "trainer", run)
        monkeypatch.setattr(type(model), "current_epoch", 0)
        model._batches_seen = 1
        with Copies() as mode:
            loss = model.training_step(data, 1)
            model.on_train_batch_end({"loss": loss}, data, 1)
        assert loss.device.type == "cuda" and loss.dtype == torch.float32
        assert len(model.knn.train_targets) == 1
    assert not mode.seen


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, which says when it waits")
@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_a_step_on_a_gpu_does_not_wait(name, symmetric):
    model, data = make(name, symmetric)
    watch(
        model,
        lambda batch_idx: torch.cuda.set_sync_debug_mode(
            "default" if logged_at(model.run.current_epoch, batch_idx) else "error"
        ),
        lambda _: torch.cuda.set_sync_debug_mode("default"),
    )
    try:
        fit(model, data, accelerator="gpu", precision="bf16-mixed")
    finally:
        torch.cuda.set_sync_debug_mode("default")
