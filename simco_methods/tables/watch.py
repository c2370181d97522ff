"""Progress over cells and within them, read from their folders: whoever runs them, and wherever."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from types import TracebackType

from tqdm import tqdm

from simco_methods.measures import in_percent
from simco_methods.progress import say
from simco_methods.tables.cells import Cell, Run

_SECONDS = 1.0  # between two looks


class Watch:
    """Shows how far runs are while they run: bars on a terminal, else a line a change.

    Args:
        cells: a cell of each run, in their order.
    """

    def __init__(self, cells: Sequence[Cell]):
        self._cells = {f"{cell.label} ({cell.run.fingerprint})": cell for cell in cells}
        self._before = {label: _mark(cell.run) for label, cell in self._cells.items()}
        self._bars: dict[str, tqdm] = {}
        self._on_terminal = sys.stdout.isatty()
        self._all = tqdm(
            total=len(cells), desc="cells", disable=not self._on_terminal, file=sys.stdout
        )
        self._ended = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        for bar in [*self._bars.values(), self._all]:
            bar.close()

    def _look_on(self) -> None:
        while not self._stop.wait(_SECONDS):
            self._look()

    def _look(self) -> None:
        for label, cell in list(self._cells.items()):
            run = cell.run
            if _mark(run) == self._before[label]:
                continue  # not begun
            if label not in self._bars:
                self._bars[label] = self._begin(label, run)
            bar = self._bars[label]
            bar.update(run.epochs_done - bar.n)
            if cell.finished or run.failure.exists():
                self._end(label, cell)

    def _begin(self, label: str, run: Run) -> tqdm:
        if not self._on_terminal:
            say(f"{label}: started, {run.log}")
        return tqdm(
            total=run.cfg.max_epochs,
            initial=run.epochs_done,
            desc=label,
            unit="epoch",
            leave=False,
            disable=not self._on_terminal,
            file=sys.stdout,
        )

    def _end(self, label: str, cell: Cell) -> None:
        try:
            outcome = _outcome(cell)
        except OSError:  # another process has begun it again
            return
        del self._cells[label]
        self._bars.pop(label).close()
        self._ended += 1
        self._all.update()
        say(f"[{self._ended}/{self._all.total}] {label}: {outcome}")


def _mark(run: Run) -> float | None:
    """Changes when the run is begun or taken up again."""
    return run.log.stat().st_mtime if run.log.exists() else None


def _outcome(cell: Cell) -> str:
    run = cell.run
    if not cell.finished:
        reason = run.failure.read_text(encoding="utf-8").strip()
        return f"failed: {reason} (all of it: {run.log})"
    summary = json.loads((run.folder / "summary.json").read_text(encoding="utf-8"))
    shown = in_percent(summary["last_epoch"], ["val_acc1"])
    return ", ".join([f"finished in {summary['seconds']:.0f} s", *shown])
