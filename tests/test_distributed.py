"""Two gloo processes of B images train as one process of 2B.

On a backbone without batch statistics: the same loss, the same averaged gradients, the same queue.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from simco_methods.distributed import gather_rows, own_rows, world_size
from tests.helpers import TINY_VIT, UNLABELLED, VARIANTS, batch, build

ROOT = Path(__file__).parents[1]
COUNT = 8
STEPS = 3
CASES = [(*variant, True) for variant in VARIANTS] + [(*variant, False) for variant in UNLABELLED]
# Negatives of all processes, keys that are drawn, a weight that is a mean over all anchors.
SETTINGS = {
    "decoupled_moco": {
        "method_kwargs__vector": {"negatives": "batch"},
        "method_kwargs__scalar": {"order": "random", "size": 7, "tau": 0.5},
    },
    "supervised_hardness": {"method_kwargs__equal_weight": True},
}


def make(name, symmetric, labelled):
    settings = SETTINGS.get(name, {})
    model = build(name, symmetric, backbone=TINY_VIT, data__no_labels=not labelled, **settings)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.eval()  # each process has its own batch statistics without SyncBatchNorm
    return model


def steps(model, rank, world, labelled):
    """Losses and gradients of three steps with SGD; what rank ``rank`` of ``world`` sees."""
    wrapped = model.step if world == 1 else model.ddp
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    per_rank = COUNT // world
    rows = slice(rank * per_rank, (rank + 1) * per_rank)
    seen = []
    for step in range(STEPS):
        indices, views, targets = batch(COUNT, seed=step, labelled=labelled)
        shard = [indices[rows], [view[rows] for view in views], targets[rows]]
        loss = wrapped(shard)
        optimizer.zero_grad()
        loss.backward()
        grads = {k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        if hasattr(model, "queues"):
            for queue, keys in zip(model.queues, model._new_keys, strict=True):
                queue.enqueue(keys)
        seen.append((loss.detach(), grads))
    return seen


class Step(torch.nn.Module):
    """So that DDP, whose forward is hooked, runs a training step."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, shard):
        return self.model.training_step(shard, 0)


def worker(folder):
    """Every case, one after the other, in one of two processes."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    results = {}
    for case in CASES:
        model = make(*case)
        model.__dict__["ddp"] = torch.nn.parallel.DistributedDataParallel(Step(model))
        start = [queue.keys.clone() for queue in getattr(model, "queues", [])]
        seen = steps(model, rank, 2, case[-1])
        queues = [(q.keys, q.pointer, q.written) for q in getattr(model, "queues", [])]
        results[case] = seen, start, queues
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


@pytest.mark.parametrize("name, symmetric, labelled", CASES)
def test_two_processes_train_as_one(name, symmetric, labelled, ranks):
    ranks = [results[name, symmetric, labelled] for results in ranks]
    model = make(name, symmetric, labelled)
    model.__dict__["step"] = Step(model)
    start = [queue.keys.clone() for queue in getattr(model, "queues", [])]
    alone = steps(model, 0, 1, labelled)
    for step, (loss, grads) in enumerate(alone):
        (loss0, grads0), (loss1, grads1) = (seen[step] for seen, *_ in ranks)
        torch.testing.assert_close((loss0 + loss1) / 2, loss, rtol=1e-5, atol=1e-5)
        assert grads.keys() == grads0.keys()
        for key in grads:
            assert torch.equal(grads0[key], grads1[key]), key
            torch.testing.assert_close(grads0[key], grads[key], rtol=1e-4, atol=1e-5)
    for (_, first, one), (_, second, other) in [ranks]:
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(first, start, strict=True))
        for (keys, pointer, written), (keys1, pointer1, written1), queue in zip(
            one, other, getattr(model, "queues", []), strict=True
        ):
            assert torch.equal(keys, keys1) and torch.equal(written, written1)
            assert pointer == pointer1 == STEPS * COUNT % 20
            torch.testing.assert_close(keys, queue.keys, rtol=1e-4, atol=1e-5)


def test_without_a_process_group_rows_stay_as_they_are():
    rows = torch.randn(3, 2, requires_grad=True)
    assert gather_rows(rows) is rows and world_size() == 1
    assert own_rows(rows).tolist() == [0, 1, 2]
