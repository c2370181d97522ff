"""How a step grows: with anchors N, keys K, dimension D, and with processes."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from simco_methods.benchmark.losses import ours, pair, queued, rows, step_of
from simco_methods.benchmark.timing import added_memory, milliseconds, one_thread, unit
from simco_methods.distributed import gather_rows
from simco_methods.losses import dual_temperature_loss
from simco_methods.methods.parts import keys_of_batch
from simco_methods.page import markdown_table

# A ResNet-18 with the CIFAR stem (padding 2): parameters, and FLOPs of SimCo's 6F for an image.
PARAMETERS, FLOPS_AN_IMAGE = 11.2e6, 8.4e9


@dataclass
class Row:
    """A line of the table.

    Attributes:
        what: is computed, forward and backward.
        milliseconds: median.
        mebibytes: peak memory that it adds, None if not measured.
    """

    what: str
    milliseconds: float
    mebibytes: float | None = None


def measure(device: torch.device, quick: bool = False) -> Iterator[Row]:
    """The loss alone, over N, K and D."""
    module = "simco_methods.benchmark.losses"
    for count in (64, 256) if quick else (256, 1024, 4096, 16384, 32768):
        time = _median(step_of(ours, pair(count, device)), 3)
        added = added_memory(module, "ours", str(count))
        yield Row(f"dual temperature, symmetric, N = {count}, D = 128", time, added)
    for keys in (64, 256) if quick else (1024, 4096, 16384, 65536):
        time = _median(step_of(queued, pair(256, device), rows(keys, device, 2)), 3)
        added = added_memory(module, "queue", str(keys))
        yield Row(f"InfoNCE, N = 256, a queue of K = {keys}, D = 128", time, added)
    for dim in (32, 64) if quick else (64, 128, 256, 512):
        sides = [side.detach().repeat(1, -(-dim // 128))[:, :dim] for side in pair(1024, device)]
        sides = [(side / side.norm(dim=1, keepdim=True)).requires_grad_() for side in sides]
        time = _median(step_of(ours, sides), 5)
        yield Row(f"dual temperature, symmetric, N = 1024, D = {dim}", time)


def _median(step: Callable[[], None], repeats: int) -> float:
    with one_thread():
        step()
        return median(milliseconds(step, 1) for _ in range(repeats))


# ---- processes -----------------------------------------------------------------------------------


def measure_processes(quick: bool = False) -> list[Row]:
    """Gather and loss of SimCo in one and in two CPU processes (gloo) of the same global batch."""
    found = []
    for processes in (1, 2):
        for batch in (64,) if quick else (256, 1024):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            results = torch.multiprocessing.get_context("spawn").SimpleQueue()
            torch.multiprocessing.spawn(
                _process, (processes, batch // processes, port, results), nprocs=processes
            )
            gather, whole = results.get()
            what = f"{processes} process(es) x {batch // processes}: gathers alone {gather:.2f} ms"
            found.append(Row(f"SimCo's loss with gathers, {what}", whole))
    return found


def _process(rank: int, processes: int, batch: int, port: int, results) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if processes > 1:
        dist.init_process_group("gloo", rank=rank, world_size=processes)
    sides = pair(batch, torch.device("cpu"))

    def gathers() -> None:
        for side in sides:
            side.grad = None
            gather_rows(side).sum().backward()

    def whole() -> None:
        for side in sides:
            side.grad = None
        gathered = keys_of_batch(sides[1])
        if gathered:
            gathered["all_queries"] = gather_rows(sides[0])
        dual_temperature_loss(*sides, symmetric=True, **gathered).backward()

    times = [_median(step, 9) for step in (gathers, whole)]
    if rank == 0:
        results.put(times)
    if processes > 1:
        dist.barrier()
        dist.destroy_process_group()


def on_paper(batch: int = 256, dim: int = 128) -> list[dict[str, float]]:
    """What SimCo's gathers and its loss cost a process, beside the network, at W processes.

    Args:
        batch: of a process.
        dim: of the embedding, float32.

    Returns:
        For each W: MiB that a process receives for keys and queries (all-gather of both views) and
        for their gradients (ring all-reduce of both), MiB for the network's gradients (ring
        all-reduce), and GFLOP of the loss beside those of the network.
    """
    table = []
    for processes in (8, 64, 512):
        others = (processes - 1) / processes
        embeddings = processes * batch * dim * 4
        table.append(
            {
                "processes": processes,
                "gather_mib": 2 * others * embeddings / 2**20,
                "gather_backward_mib": 2 * 2 * others * embeddings / 2**20,
                "network_gradient_mib": 2 * others * PARAMETERS * 4 / 2**20,
                # Two sides, each a product forward, again backward, and two for its gradients.
                "loss_gflop": 2 * 4 * 2 * batch * processes * batch * dim / 1e9,
                "network_gflop": batch * FLOPS_AN_IMAGE / 1e9,
            }
        )
    return table


def table(rows_: list[Row]) -> str:
    """What was measured, as Markdown."""
    lines = [["forward and backward of", unit(), "peak memory added, MiB"]]
    for row in rows_:
        memory = "" if row.mebibytes is None else f"{row.mebibytes:,.0f}"
        lines.append([row.what, f"{row.milliseconds:,.1f}", memory])
    return markdown_table(lines)


def paper_table(paper: list[dict[str, float]]) -> str:
    """:func:`on_paper`, as Markdown."""
    lines = [["processes", "gathers", "their backward", "network's gradients", "loss", "network"]]
    for row in paper:
        processes, *sizes, loss, network = row.values()
        mebibytes = [f"{size:,.1f} MiB" for size in sizes]
        lines.append([f"{processes}", *mebibytes, f"{loss:,.1f} GFLOP", f"{network:,.0f} GFLOP"])
    return markdown_table(lines)
