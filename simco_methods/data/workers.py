"""Worker processes of a loader: the signals that are not for them, and how they end."""

from __future__ import annotations

import atexit
import os
import signal
import weakref
from typing import Any

from torch.utils.data import DataLoader

_loaders: weakref.WeakSet[DataLoader] = weakref.WeakSet()


def usable_workers(wanted: int, processes: int = 1) -> int:
    """As many workers as are wanted and there are cores for: at least one, if any are wanted.

    Args:
        wanted: at most.
        processes: of this machine that each have as many.
    """
    return min(wanted, max(1, cores() // processes))


def cores() -> int:
    """CPU cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def with_workers(loader: DataLoader) -> DataLoader:
    """The loader, whose workers will be ended by :func:`end_workers`, or where Python ends."""
    if loader.num_workers:
        if not _loaders:
            # Before the exit of multiprocessing, which tells workers once and waits for them.
            atexit.unregister(end_workers)
            atexit.register(end_workers)
        _loaders.add(loader)
    return loader


def end_workers() -> None:
    """Ends the workers that wait for a next epoch, or that an error has left behind."""
    for loader in list(_loaders):
        iterator, loader._iterator = loader._iterator, None
        if iterator is not None:
            iterator._shutdown_workers()


def leave_signals_to_the_run(worker: int) -> None:
    """For a worker's start: what ends a run does not end its workers before it.

    A terminal's Ctrl-C, and SIGTERM and SIGUSR1 of a scheduler, go to all processes at once; the
    run still needs its workers to come to where it can save, and ends them itself.
    """
    for name in ("SIGINT", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _spare_once)


def _spare_once(signum: int, frame: Any) -> None:
    # A worker that hangs is terminated twice: by its loader, and where Python ends.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
