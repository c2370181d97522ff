"""Two sides in turns: their times, the ratio of each pair, its median and spread."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import torch

from simco_methods.machine import peak_memory_mib
from simco_methods.machine import wait_for_gpu as wait


@dataclass
class Comparison:
    """What was measured of two sides.

    Attributes:
        part: of the benchmark, "loss", "augmentation", ...
        what: was measured, in words.
        other: what this code is compared with.
        ours, others: values of this code and of the other side, pair by pair.
        unit: of the values; less is better.
        target: ratio that is aimed at, None for none.
    """

    part: str
    what: str
    other: str
    ours: list[float]
    others: list[float]
    unit: str
    target: float | None = None
    ratios: list[float] = field(init=False)

    def __post_init__(self) -> None:
        pairs = zip(self.ours, self.others, strict=True)
        self.ratios = [other / own for own, other in pairs if own > 0]

    @property
    def ratio(self) -> float:
        """Median over the pairs of the other side over this code: above 1, this code is better.

        NaN if nothing was measured of this code.
        """
        return median(self.ratios) if self.ratios else math.nan

    def __str__(self) -> str:
        spread = ""
        if len(self.ratios) > 1:
            spread = f" ({min(self.ratios):.2f} to {max(self.ratios):.2f})"
        aim = f", target {self.target:g}" if self.target else ""
        values = f"{median(self.ours):.4g} against {median(self.others):.4g} {self.unit}"
        pair = f"{self.part}: {self.what}, against {self.other}"
        return f"{pair}: {self.ratio:.2f}{spread}, {values}{aim}"


def clock() -> float:
    """Seconds: on a CPU of processor time, which other processes hardly change."""
    return time.perf_counter() if torch.cuda.is_available() else time.process_time()


@contextmanager
def one_thread() -> Iterator[None]:
    """On a CPU what is timed within has one core, so that neither side's idle threads count."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def unit() -> str:
    """Of :func:`clock`."""
    return "ms" if torch.cuda.is_available() else "ms of processor time"


def in_turns(
    ours: Callable[[], object],
    other: Callable[[], object],
    rounds: int = 7,
    seconds: float = 0.3,
) -> tuple[list[float], list[float]]:
    """Milliseconds a call of each side, pair by pair, after two calls of each that warm up.

    Args:
        ours, other: the sides.
        rounds: pairs.
        seconds: that one measurement is to take about, in as many calls as that needs.
    """
    sides = (ours, other)
    for side in sides:
        milliseconds(side, 1)
    calls = [max(1, round(1000 * seconds / max(milliseconds(side, 1), 1e-3))) for side in sides]
    return alternate(
        lambda: milliseconds(ours, calls[0]), lambda: milliseconds(other, calls[1]), rounds
    )


def alternate(
    ours: Callable[[], float], other: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    """What each side gives, pair by pair, now the one first, now the other."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            found[side].append((ours, other)[side]())
    return found


def milliseconds(work: Callable[[], object], calls: int) -> float:
    """Of a call, the mean of so many."""
    wait()
    start = clock()
    for _ in range(calls):
        work()
    wait()
    return 1000 * (clock() - start) / calls


def added_memory(module: str, *arguments: str) -> float:
    """Peak memory in MiB that ``python -m MODULE ARGUMENTS`` prints as its last line.

    In a process of its own: of a CPU only the whole process's peak is known.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def print_added(work: Callable[[], object], device: torch.device) -> None:
    """The other end of :func:`added_memory`: does the work, prints by how much the peak rose."""
    before = peak_memory_mib(device)
    work()
    wait()
    print(json.dumps(peak_memory_mib(device) - before))
