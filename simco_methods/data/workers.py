"""Worker processes of a loader, and the signals that are not for them."""

from __future__ import annotations

import signal
from typing import Any


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
