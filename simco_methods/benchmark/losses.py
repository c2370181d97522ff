"""The losses against the textbook formulation, and other libraries' where they are there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from simco_methods.benchmark import textbook
from simco_methods.benchmark.timing import (
    Comparison,
    added_memory,
    in_turns,
    one_thread,
    print_added,
    unit,
)
from simco_methods.losses import dual_temperature_loss, info_nce_loss, l2_normalize
from simco_methods.machine import find_device

DIM, TAU, QUEUE = 128, 0.1, 65536


def rows(count: int, device: torch.device, seed: int = 0) -> Tensor:
    """(count, D) unit vectors."""
    generator = torch.Generator().manual_seed(seed)
    return l2_normalize(torch.randn(count, DIM, generator=generator)).to(device)


def pair(count: int, device: torch.device) -> list[Tensor]:
    """Anchors and positives near them, with gradient."""
    query = rows(count, device)
    key = l2_normalize(query + 0.05 * rows(count, device, 1))
    return [side.requires_grad_() for side in (query, key)]


def step_of(loss: Callable[..., Tensor], sides: list[Tensor], *rest: object) -> Callable[[], None]:
    """Forward and backward of a loss."""

    def step() -> None:
        for side in sides:
            side.grad = None
        loss(*sides, *rest).backward()

    return step


def ours(query: Tensor, key: Tensor) -> Tensor:
    return dual_temperature_loss(query, key, tau_alpha=TAU, tau_beta=1.0, symmetric=True)


def theirs(query: Tensor, key: Tensor) -> Tensor:
    return textbook.dual_temperature(query, key, TAU, 1.0)


def theirs_one_product(query: Tensor, key: Tensor) -> Tensor:
    return textbook.dual_temperature_one_product(query, key, TAU, 1.0)


def queued(query: Tensor, key: Tensor, queue: Tensor) -> Tensor:
    return info_nce_loss(query, key.detach(), queue, TAU)


def queued_textbook(query: Tensor, key: Tensor, queue: Tensor) -> Tensor:
    return textbook.info_nce(query, key.detach(), queue, TAU)


def compare(device: torch.device, quick: bool = False) -> Iterator[Comparison]:
    """Forward and backward, time and memory."""
    rounds = 3 if quick else 9
    sizes = (64, 256) if quick else (64, 256, 1024, 4096)
    for count in sizes:
        sides = pair(count, device)
        what = f"dual temperature, N = {count}, D = {DIM}"
        target = {256: 1.0, 4096: 3.0}.get(count)
        others = {
            "the textbook softmax": theirs,
            "the same, one product for both sides": theirs_one_product,
        }
        for name, other in others.items():
            with one_thread():
                times = in_turns(step_of(ours, sides), step_of(other, sides), rounds)
            yield Comparison("loss", what, name, *times, unit(), target)
    large = sizes[-1]
    peaks = [
        added_memory("simco_methods.benchmark.losses", side, str(large))
        for side in ("ours", "textbook")
    ]
    what = f"dual temperature, N = {large}, D = {DIM}, peak memory added"
    found = [[peak] for peak in peaks]
    target = None if quick else 4.0
    yield Comparison("loss", what, "the textbook softmax", *found, "MiB", target)

    keys = 1024 if quick else QUEUE
    sides, queue = pair(256, device), rows(keys, device, 2)
    what = f"InfoNCE, 256 anchors, a queue of {keys}"
    own = step_of(queued, sides, queue)
    others = {"the textbook cross entropy": step_of(queued_textbook, sides, queue)}
    others |= _libraries(sides, queue)
    for name, other in others.items():
        with one_thread():
            times = in_turns(own, other, rounds)
        yield Comparison("loss", what, name, *times, unit())


def _libraries(sides: list[Tensor], queue: Tensor) -> dict[str, Callable[[], None]]:
    """The same loss of solo-learn and of lightly, where they can be imported."""
    found: dict[str, Callable[[], None]] = {}
    try:
        from solo.losses.mocov2plus import mocov2plus_loss_func
    except ImportError:
        pass
    else:
        transposed = queue.T.contiguous()

        def solo(query: Tensor, key: Tensor) -> Tensor:
            return mocov2plus_loss_func(query, key.detach(), transposed, TAU)

        found["solo-learn's mocov2plus_loss_func"] = step_of(solo, sides)
    try:
        from lightly.loss import NTXentLoss
    except ImportError:
        pass
    else:
        loss = NTXentLoss(temperature=TAU, memory_bank_size=(len(queue), queue.shape[1]))
        loss = loss.to(queue.device)

        def lightly(query: Tensor, key: Tensor) -> Tensor:
            return loss(query, key.detach())

        found["lightly's NTXentLoss, which also fills its memory bank"] = step_of(lightly, sides)
    return found


def main() -> None:
    """Peak memory that one side adds: ``ours N``, ``textbook N`` or ``queue K``."""
    side, size = sys.argv[1], int(sys.argv[2])
    device = find_device()
    warm = pair(8, device)
    if side == "queue":
        bank = rows(size, device, 2)
        loss, rest, sides = queued, (bank,), pair(256, device)
    else:
        loss, rest, sides = {"ours": ours, "textbook": theirs}[side], (), pair(size, device)
    step_of(loss, warm, *(part[:8] for part in rest))()
    print_added(step_of(loss, sides, *rest), device)


if __name__ == "__main__":
    main()
