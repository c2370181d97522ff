"""What a script does: says what is to be done and what it costs, runs it, reports."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from simco_methods.tables.cells import Cell, distinct
from simco_methods.tables.cost import estimate, fetch
from simco_methods.tables.definition import Table, read_scale, read_table, table_names
from simco_methods.tables.launch import launch, launcher_name
from simco_methods.tables.plan import (
    Settings,
    expand,
    plan_folder,
    planned_seeds,
    processes,
    write_plan,
)
from simco_methods.tables.present import report_plan
from simco_methods.tables.watch import Watch
from simco_methods.wording import count


class Script:
    """The tables that one command asks for.

    Args:
        arguments: of ``simco-table``.

    Raises:
        ValueError: tables, a scale, labels or overrides that do not fit, by name.
    """

    def __init__(self, arguments: argparse.Namespace):
        words = arguments.arguments
        given = [word for word in words if "=" in word]
        names = [word for word in words if "=" not in word]
        if "all" in names:
            names = table_names()
        if not names:
            raise ValueError(f"no table named: {', '.join(table_names())}, or all")
        self._dry = arguments.dry
        self._launcher = launcher_name(arguments.launcher)
        self._hydra = [word for word in given if word.lstrip("+~").startswith("hydra")]
        # Runs on other machines have the precision of those; this one need have no GPU.
        self._elsewhere = "slurm" in self._launcher
        self._settings = Settings(
            seeds=tuple(dict.fromkeys(arguments.seeds)),
            data=arguments.data,
            out=arguments.out,
            overrides=tuple(word for word in given if word not in self._hydra),
            implied=("accelerator=gpu",) if self._elsewhere else (),
        )
        self._scale = read_scale(arguments.scale, arguments.dataset)
        self._tables = [read_table(name, self._scale) for name in dict.fromkeys(names)]
        self._cells = {table.name: self._expand(table) for table in self._tables}
        chosen = _chosen(self._tables, self._cells, arguments.only)
        self._wanted = distinct([c for c in chosen if c.seed in self._settings.seeds])
        devices = {processes(cell.run.cfg) for cell in chosen}
        self._jobs = self._parallel(arguments, max(devices, default=1))

    def _folder(self, table: Table) -> Path:
        return plan_folder(table, self._settings)

    def _expand(self, table: Table) -> list[Cell]:
        """Of the seeds that are asked for, and of those that were before."""
        before = planned_seeds(self._folder(table))
        seeds = tuple(sorted({*self._settings.seeds, *before}))
        return expand(table, dataclasses.replace(self._settings, seeds=seeds))

    def _parallel(self, arguments: argparse.Namespace, devices: int) -> int:
        """Runs at a time; tells the launcher what it needs for it."""
        if self._elsewhere and devices > 1:
            self._hydra.insert(0, f"hydra.launcher.gpus_per_node={devices}")
        if self._launcher != "joblib":
            if arguments.jobs:
                raise ValueError(f"--jobs is for --launcher joblib, not {arguments.launcher}")
            return 1
        if arguments.jobs is not None and arguments.jobs < 1:
            raise ValueError(f"--jobs {arguments.jobs}: must be 1 or more")
        cores = os.cpu_count() or 2
        jobs = arguments.jobs or max(1, (torch.cuda.device_count() or cores // 2) // devices)
        self._hydra.append(f"hydra.launcher.n_jobs={jobs}")
        if jobs > 1 and "OMP_NUM_THREADS" not in os.environ:
            threads = max(1, cores // (jobs * devices))
            os.environ["OMP_NUM_THREADS"] = str(threads)  # of the runs and of the probe
            torch.set_num_threads(threads)
        return jobs

    @property
    def _left(self) -> list[Cell]:
        """Of each run that is wanted and not at its end, a place that it is wanted for."""
        unfinished = ([c for c in places if not c.finished] for places in self._wanted.values())
        return [cells[0] for cells in unfinished if cells]

    # ---- before ----------------------------------------------------------------------------------

    def announce(self) -> None:
        """Prints cells, runs, an estimate of the time and of the disk space."""
        left = self._left
        for table in self._tables:
            cells = self._cells[table.name]
            finished = sum(cell.finished for cell in cells)
            print(
                f"{table.title}: scale {self._scale.name}, {len(cells)} cells "
                f"({finished} finished), {count(len(distinct(cells)), 'run')}"
            )
        for cell in left:
            print(f"  {cell.run.fingerprint}  {cell.label}: {cell.state}")
        if not left:
            print("nothing is left to run")
            return
        print(f"{count(len(left), 'run')} to make in {self._settings.out / 'cells'}", flush=True)
        if not self._dry:
            fetch([cell.run.cfg for cell in left])
        if self._elsewhere:
            print("  no estimate of time and disk: the runs are made on other machines than this")
            return
        cache = None if self._dry else self._settings.out / "probes.json"
        for line in estimate(
            left, self._scale.probe_batches, self._jobs, self._settings.out, cache
        ):
            print(line, flush=True)

    # ---- then ------------------------------------------------------------------------------------

    def run(self) -> int:
        """Runs what is to be run, and reports.

        Returns:
            0 if all that was wanted is there, 1 if runs have failed, 2 if some have not ended.
        """
        for table in self._tables:
            write_plan(self._folder(table), table, self._cells[table.name], self._settings)
        for cell in itertools.chain(*self._wanted.values()):
            if not cell.finished:
                cell.prepare()
        left = self._left
        try:
            if left:
                folders = [cell.run.folder for cell in left]
                with Watch(left):
                    launch(folders, self._settings.out, self._launcher, self._hydra)
        except KeyboardInterrupt:
            if self._elsewhere:
                print("jobs that are in the queue stay there", flush=True)
            raise
        except (Exception, SystemExit) as error:  # Hydra has said why; runs may still go on
            print(f"the launcher ended early ({error!r})", flush=True)
        finally:
            for table in self._tables:
                folder = self._folder(table)
                print(f"\n{report_plan(folder, folder)}", end="", flush=True)
        return self._close()

    def _close(self) -> int:
        left = self._left
        failed = [cell for cell in left if cell.state == "failed"]
        for cell in failed:
            print(f"failed: {cell.label}: {cell.run.failure.read_text().strip()} ({cell.run.log})")
        if len(left) > len(failed):
            number = count(len(left) - len(failed), "run")
            print(f"{number} not ended: stopped, or of another process; the same command goes on")
        return 1 if failed else 2 if left else 0


def _chosen(tables: Sequence[Table], cells: dict[str, list[Cell]], only: str) -> list[Cell]:
    """The cells to run: all, or those of the rows and columns that ``only`` names."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = dict.fromkeys(label for table in tables for label in (*table.rows, *table.columns))
    for name in names:
        if name not in known:
            raise ValueError(f"--only {name}: is none of {', '.join(known)}")
    chosen = []
    for table in tables:
        rows = [row for row in table.rows if row in names]
        columns = [column for column in table.columns if column in names]
        if names and not rows and not columns:
            continue
        rows, columns = rows or list(table.rows), columns or list(table.columns)
        chosen += [c for c in cells[table.name] if c.row in rows and c.column in columns]
    return chosen
