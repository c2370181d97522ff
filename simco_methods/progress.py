"""Progress of long work: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

SHORT_SECONDS = 2.0  # phases that take less are not told of where there is no terminal
LINE_SECONDS = 30.0  # between two lines
_LOOK_SECONDS = 0.5
_UNCOUNTED = "{desc}: {elapsed}"
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
Item = TypeVar("Item")


class Progress:
    """How far a phase of a command is.

    On a terminal a bar on stderr. Elsewhere a line there after 2 s and another every 30 s, and
    nothing of phases that end before. Of several processes the first one alone shows it.

    As a context manager it also shows that time passes while nothing is counted, as in
    ``with Progress("drawing the map"): ...``.

    Args:
        title: of the phase, what is being done: "reading images".
        total: how much there is to do; None where that is not known.
        unit: what is counted, in the plural.
        done: what was done before.
        patience: seconds before the first line.

    Attributes:
        done: how much is done.
    """

    def __init__(
        self,
        title: str,
        total: int | None = None,
        unit: str = "images",
        done: int = 0,
        patience: float | None = None,
    ) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._first = self.done = done
        self._began = time.monotonic()
        self._due = self._began + (SHORT_SECONDS if patience is None else patience)
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        shown = shows_progress()
        self._lines = shown and not on_terminal()
        self._bar: tqdm[Any] | None = None
        if shown and not self._lines:
            self._bar = tqdm(
                desc=title,
                total=total,
                initial=done,
                unit=f" {unit}",
                leave=False,
                bar_format=_UNCOUNTED if total is None else None,
            )

    def update(self, count: int = 1) -> None:
        """``count`` more are done."""
        self.done += count
        if self._bar is not None:
            self._bar.bar_format = None
            self._bar.update(count)
        elif self._lines:
            self._tell()

    def close(self) -> None:
        """The phase is over."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Progress:
        if self._bar is not None or self._lines:
            self._thread = threading.Thread(target=self._look_on, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _look_on(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            if self._bar is not None:
                self._bar.refresh()
            else:
                self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        with self._lock:
            if now < self._due:
                return
            self._due = now + LINE_SECONDS
        print(self._line(now - self._began), file=sys.stderr, flush=True)

    def _line(self, seconds: float) -> str:
        if not self.done and self._total is None:
            return f"{self._title}: {duration(seconds)}"
        counted = f"{self.done:,}"
        if self._total is not None:
            counted += f"/{self._total:,}"
        said = f"{self._title}: {counted} {self._unit}"
        here = self.done - self._first
        if self._total and here:
            left = seconds / here * (self._total - self.done)
            said += f" ({self.done / self._total:.0%}), {duration(left)} left"
        return said


def track(
    items: Iterable[Item], title: str, total: int | None = None, unit: str = "images"
) -> Iterator[Item]:
    """The items one after the other, with their :class:`Progress`.

    Args:
        items: what is gone through.
        title, total, unit: of :class:`Progress`; the total by default the length, if there is one.
    """
    if total is None and hasattr(items, "__len__"):
        total = len(items)
    progress = Progress(title, total, unit)
    try:
        for item in items:
            yield item
            progress.update()
    finally:
        progress.close()


def say(text: str) -> None:
    """Prints above the bars that are there."""
    tqdm.write(text, file=sys.stdout)
    sys.stdout.flush()


def shows_progress() -> bool:
    """Whether this is the first process of those that a launcher has started."""
    return all(os.environ.get(name, "0") in ("", "0") for name in _RANKS)


def on_terminal() -> bool:
    """Whether a bar can be drawn."""
    return sys.stderr is not None and sys.stderr.isatty()


def duration(seconds: float) -> str:
    """``42 s``, ``7 min``, ``2.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
