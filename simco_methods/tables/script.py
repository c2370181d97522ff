"""What a script does: says what is to be done and what it costs, runs it, reports."""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence

import torch

from simco_methods.config import runs_on_cpu
from simco_methods.machine import hardware
from simco_methods.tables.cells import Cell, distinct
from simco_methods.tables.definition import Table, read_scale, read_table, table_names
from simco_methods.tables.launch import launch, launcher_name
from simco_methods.tables.plan import Settings, expand, plan_file, write_plan
from simco_methods.tables.present import present
from simco_methods.tables.probe import Probes, Speed, kind, probe
from simco_methods.tables.watch import Watch


class Script:
    """The tables that one command asks for.

    Args:
        arguments: of ``simco-table``.

    Raises:
        ValueError: tables, a scale, labels or overrides that do not fit, by name.
    """

    def __init__(self, arguments: argparse.Namespace):
        self._dry = arguments.dry
        words = arguments.arguments
        overrides = [word for word in words if "=" in word]
        names = [word for word in words if "=" not in word]
        if "all" in names:
            names = table_names()
        if not names:
            raise ValueError(f"no table named: {', '.join(table_names())}, or all")
        self._hydra = [word for word in overrides if word.lstrip("+~").startswith("hydra")]
        overrides = [word for word in overrides if word not in self._hydra]
        self._launcher = launcher_name(arguments.launcher)
        if "slurm" in self._launcher and not any("accelerator=" in word for word in overrides):
            # This machine need have none: the runs' precision is that of the machines they run on.
            overrides.insert(0, "accelerator=gpu")
        self._jobs = self._parallel(arguments)
        self._settings = Settings(
            seeds=tuple(dict.fromkeys(arguments.seeds)),
            data=arguments.data.expanduser(),
            out=arguments.out.expanduser(),
            overrides=tuple(overrides),
        )
        self._scale = read_scale(arguments.scale, arguments.dataset)
        tables = [read_table(name, self._scale) for name in dict.fromkeys(names)]
        self._cells: dict[str, list[Cell]] = {}
        for table in tables:
            self._cells[table.name] = expand(table, self._settings)
        self._tables = tables
        wanted = _chosen(tables, self._cells, arguments.only)
        self._wanted = distinct(wanted)

    def _parallel(self, arguments: argparse.Namespace) -> int:
        if self._launcher != "joblib":
            if arguments.jobs:
                raise ValueError(f"--jobs is for --launcher joblib, not {arguments.launcher}")
            return 1
        if arguments.jobs is not None and arguments.jobs < 1:
            raise ValueError(f"--jobs {arguments.jobs}: must be 1 or more")
        jobs = arguments.jobs or torch.cuda.device_count() or max(1, (os.cpu_count() or 2) // 2)
        self._hydra.append(f"hydra.launcher.n_jobs={jobs}")
        if jobs > 1 and "OMP_NUM_THREADS" not in os.environ:
            os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))
        return jobs

    @property
    def _left(self) -> list[Cell]:
        """Of each run that is wanted and not at its end, a place that it is wanted for."""
        unfinished = ([c for c in places if not c.finished] for places in self._wanted.values())
        return [cells[0] for cells in unfinished if cells]

    # ---- before ----------------------------------------------------------------------------------

    def announce(self) -> None:
        """Prints cells, runs, an estimate of the time and of the disk space."""
        out, to_run = self._settings.out, self._left
        for table in self._tables:
            cells = self._cells[table.name]
            finished = sum(cell.finished for cell in cells)
            runs = len(distinct(cells))
            print(
                f"{table.title}: scale {self._scale.name}, {len(cells)} cells "
                f"({finished} finished), {_count(runs, 'run')}"
            )
        for cell in to_run:
            print(f"  {cell.run.fingerprint}  {cell.label}: {cell.state}")
        if not to_run:
            print("nothing is left to run")
            return
        print(f"{_count(len(to_run), 'run')} to make in {out / 'cells'}", flush=True)
        print("\n".join(self._estimate(to_run)), flush=True)

    def _estimate(self, cells: Sequence[Cell]) -> list[str]:
        device = torch.device("cpu" if runs_on_cpu(cells[0].run.cfg) else "cuda")
        if "slurm" in self._launcher or (device.type == "cuda" and not torch.cuda.is_available()):
            return ["  no estimate: the runs are made on other machines than this"]
        print(f"  measuring how fast {hardware(device, 1)} is ...", flush=True)
        kinds = {cell.run.fingerprint: kind(cell.run.cfg) for cell in cells}
        examples = {kinds[cell.run.fingerprint]: cell.run.cfg for cell in reversed(cells)}
        probes = Probes(self._settings.out / "probes.json", hardware(device, 1))
        speeds = probe(examples, self._scale.probe_batches, probes)
        if not self._dry:
            probes.write()
        return self._sum_up(cells, {name: speeds[of] for name, of in kinds.items()})

    def _sum_up(self, cells: Sequence[Cell], speeds: Mapping[str, Speed]) -> list[str]:
        seconds, size, lines = 0.0, 0, []
        unknown: dict[str, int] = {}
        for cell in cells:
            speed = speeds[cell.run.fingerprint]
            if speed.error:
                unknown[speed.error] = unknown.get(speed.error, 0) + 1
                continue
            seconds += speed.seconds(cell.run.cfg.max_epochs - cell.run.epochs_done)
            size += speed.folder_bytes
        known = len(cells) - sum(unknown.values())
        if known:
            together = f", {self._jobs} at a time" if self._jobs > 1 else ""
            parent = next(
                p
                for p in (self._settings.out.resolve(), *self._settings.out.resolve().parents)
                if p.exists()
            )
            free = shutil.disk_usage(parent).free
            lines.append(
                f"  about {_duration(seconds / self._jobs)} for {_count(known, 'run')}{together}, "
                f"about {size / 2**20:.0f} MiB of disk ({free / 2**30:.1f} GiB are free)"
            )
        lines += [f"  no estimate for {_count(n, 'run')}: {why}" for why, n in unknown.items()]
        return lines

    # ---- then ------------------------------------------------------------------------------------

    def run(self) -> int:
        """Runs what is to be run, reports; returns 1 if a run has failed."""
        for table in self._tables:
            write_plan(table, self._cells[table.name], self._settings)
        for cell in itertools.chain(*self._wanted.values()):
            if not cell.finished:
                cell.prepare()
        left = self._left
        try:
            if left:
                folders = [cell.run.folder for cell in left]
                with Watch(left):
                    launch(folders, self._settings.out, self._launcher, self._hydra)
        finally:
            self._report()
        return self._close()

    def _report(self) -> None:
        for table in self._tables:
            folder = plan_file(self._settings.out, self._scale.name, table.name).parent
            text = present(table, self._cells[table.name], self._settings.overrides, folder)
            print(f"\n{text}\nall of it: {folder / 'report.html'}", flush=True)

    def _close(self) -> int:
        left = self._left
        failed = [cell for cell in left if cell.state == "failed"]
        for cell in failed:
            print(f"failed: {cell.label}: {cell.run.failure.read_text().strip()} ({cell.run.log})")
        if len(left) > len(failed):
            print(f"{_count(len(left) - len(failed), 'run')} not ended: of another process?")
        return 1 if failed else 0


def _chosen(tables: Sequence[Table], cells: dict[str, list[Cell]], only: str) -> list[Cell]:
    """The cells to run: all, or those of the rows and columns that ``only`` names."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = dict.fromkeys(label for table in tables for label in (*table.rows, *table.columns))
    for name in names:
        if name not in known:
            raise ValueError(f"--only {name}: is none of {', '.join(known)}")
    chosen = []
    for table in tables:
        rows = [row for row in table.rows if row in names] or list(table.rows)
        columns = [column for column in table.columns if column in names] or list(table.columns)
        chosen += [c for c in cells[table.name] if c.row in rows and c.column in columns]
    return chosen


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
