"""Two gloo processes of B images train as one process of 2B.

With fixed batch statistics: the same loss, the same averaged gradients, the same queue.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from simco_methods.distributed import gather_rows, mean_over_processes, own_rows, world_size
from simco_methods.host import LeanMomentumMethod
from simco_methods.methods import METHODS
from tests.helpers import UNLABELLED, VARIANTS, batch, build

ROOT = Path(__file__).parents[1]
COUNT = 8
STEPS = 3
# Every image labelled; some, of one process more than of the other, in one step none of one's; or
# no classifier at all.
CASES = [
    *((*variant, labels) for variant in VARIANTS for labels in ("all", "some")),
    *((*variant, "none") for variant in UNLABELLED),
]
WITHOUT_LABEL = [[1, 2, 7], [4, 5, 6, 7], [0, 3, 4, 5, 6]]  # by step, of "some"
# Negatives of all processes, keys that are drawn, a weight that is a mean over all anchors.
SETTINGS = {
    "decoupled_moco": {
        "method_kwargs__vector": {"negatives": "batch"},
        "method_kwargs__scalar": {"order": "random", "size": 7, "tau": 0.5},
    },
    "supervised_hardness": {"method_kwargs__equal_weight": True},
}


def make(name, symmetric, labels):
    settings = dict(SETTINGS.get(name, {}))
    if issubclass(METHODS[name], LeanMomentumMethod):
        settings["momentum__classifier"] = labels == "some"
    settings["data__no_labels"] = labels == "none"
    model = build(name, symmetric, **settings)
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.eval()  # each process has its own batch statistics without SyncBatchNorm
    return model


def steps(model, rank, world, labels):
    """Of three steps with SGD, what rank ``rank`` of ``world`` sees: loss, gradients, queues."""
    wrapped = model.step if world == 1 else model.ddp
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    per_rank = COUNT // world
    rows = slice(rank * per_rank, (rank + 1) * per_rank)
    seen = []
    for step in range(STEPS):
        indices, views, targets = batch(COUNT, seed=step, labelled=labels != "none")
        if labels == "some":
            targets[WITHOUT_LABEL[step]] = -1
        shard = [indices[rows], [view[rows] for view in views], targets[rows]]
        loss = wrapped(shard)
        optimizer.zero_grad()
        loss.backward()
        grads = {k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        if hasattr(model, "queues"):
            for queue, keys in zip(model.queues, model._new_keys, strict=True):
                queue.enqueue(keys)
        seen.append((loss.detach(), grads, state_of_queues(model)))
    return seen


def state_of_queues(model):
    return [{k: v.clone() for k, v in q.named_buffers()} for q in getattr(model, "queues", [])]


def logged(model, world):
    """The means that would be logged after these steps."""

    def reduce(sums, reduce_op):
        assert reduce_op == "sum"
        torch.distributed.all_reduce(sums)
        return sums

    run = SimpleNamespace(world_size=world, strategy=SimpleNamespace(reduce=reduce))
    return model._train_means.pop(run)


class Step(torch.nn.Module):
    """So that DDP, whose forward is hooked, runs a training step."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, shard):
        return self.model.training_step(shard, 0)


def buffers(rank):
    """Queue and batch statistics of unlike processes: when training starts, and after a forward
    before which they were made unlike again."""
    model = build("mocov2", seed=rank)
    model._trainer = SimpleNamespace(global_step=0, estimated_stepping_batches=STEPS)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    model.on_train_start()
    start = state_of_queues(model)
    norm = next(m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d))
    for buffer in (model.queues[0].keys, norm.running_mean):
        buffer.fill_(rank)
    ddp.eval()
    ddp(batch(COUNT)[1][0])
    return start, model.queues[0].keys.clone(), norm.running_mean.clone()


def worker(folder):
    """Every case, one after the other, in one of two processes."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    results = {}
    for case in CASES:
        model = make(*case)
        start = state_of_queues(model)
        model.__dict__["ddp"] = torch.nn.parallel.DistributedDataParallel(Step(model))
        results[case] = start, steps(model, rank, 2, case[-1]), logged(model, 2)
    results["buffers"] = buffers(rank)
    torch.save(results, Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What both processes saw, by case."""
    folder = tmp_path_factory.mktemp("ranks")
    env = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
    }
    code = f"from tests.test_distributed import worker; worker({str(folder)!r})"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env={**env, "RANK": str(rank)})
        for rank in (0, 1)
    ]
    assert [process.wait(timeout=400) for process in processes] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


def equal(queues, others):
    return len(queues) == len(others) and all(
        torch.equal(one[key], other[key])
        for one, other in zip(queues, others, strict=True)
        for key in ("keys", "pointer", "written", "step")
    )


@pytest.mark.parametrize("name, symmetric, labels", CASES)
def test_two_processes_train_as_one(name, symmetric, labels, ranks):
    (start0, seen0, logged0), (start1, seen1, logged1) = (
        results[name, symmetric, labels] for results in ranks
    )
    model = make(name, symmetric, labels)
    model.__dict__["step"] = Step(model)
    start = state_of_queues(model)
    assert equal(start0, start1) and equal(start0, start)
    for step, (loss, grads, queues) in enumerate(steps(model, 0, 1, labels)):
        (loss0, grads0, queues0), (loss1, grads1, queues1) = seen0[step], seen1[step]
        torch.testing.assert_close((loss0 + loss1) / 2, loss, rtol=1e-5, atol=1e-5)
        assert grads.keys() == grads0.keys()
        for key in grads:
            assert torch.equal(grads0[key], grads1[key]), key
            torch.testing.assert_close(grads0[key], grads[key], rtol=1e-4, atol=1e-5)
        assert equal(queues0, queues1)
        for one, alone in zip(queues0, queues, strict=True):
            assert one["pointer"] == (step + 1) * COUNT % 20
            torch.testing.assert_close(one["keys"], alone["keys"], rtol=1e-4, atol=1e-5)
    alone = logged(model, 1)
    assert logged0.keys() == logged1.keys() == alone.keys()
    for key in alone:
        if key.endswith(("loss", "acc1", "acc5", "sim")):  # the others are of a process's batch
            assert logged0[key] == logged1[key] == pytest.approx(alone[key], rel=1e-5), key


def test_queues_are_sent_around_once_and_batch_statistics_before_every_forward(ranks):
    (start0, keys0, means0), (start1, keys1, means1) = (results["buffers"] for results in ranks)
    assert equal(start0, start1)
    assert (keys0 == 0).all() and (keys1 == 1).all()
    assert (means0 == 0).all() and (means1 == 0).all()


def test_without_a_process_group_rows_stay_as_they_are():
    rows = torch.randn(3, 2, requires_grad=True)
    assert gather_rows(rows) is rows and mean_over_processes(rows) is rows and world_size() == 1
    assert own_rows(rows).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_sync_batch_norm_reaches_every_network(name, symmetric):
    """Lightning converts the method as a whole, the momentum network and projectors with it."""
    model = build(name, symmetric)
    before = {key: value.data_ptr() for key, value in model.state_dict().items()}
    converted = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model
    assert {key: value.data_ptr() for key, value in model.state_dict().items()} == before
    norms = {
        key: type(module)
        for key, module in model.named_modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    }
    assert set(norms.values()) == {torch.nn.SyncBatchNorm}
    networks = {key.split(".")[0] for key in norms}
    assert "backbone" in networks
    if isinstance(model, LeanMomentumMethod):
        assert "momentum_backbone" in networks
        for online, momentum in model.momentum_pairs:
            kinds = [[type(m) for m in network.modules()] for network in (online, momentum)]
            assert kinds[0] == kinds[1]
    if name == "byol_hardness":
        assert {"projector", "momentum_projector", "predictor"} <= networks
