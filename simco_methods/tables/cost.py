"""What runs will cost on this machine, and their data brought before they need it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from omegaconf import DictConfig

from simco_methods.config.spelling import runs_on_cpu
from simco_methods.data import load_images
from simco_methods.machine import hardware
from simco_methods.progress import duration
from simco_methods.tables.cells import Cell
from simco_methods.tables.probe import Probes, Speed, kind, probe
from simco_methods.wording import count


def fetch(cfgs: Sequence[DictConfig]) -> None:
    """Downloads what is to be downloaded, once, before several runs would at a time."""
    wanted = {(cfg.data.dataset, cfg.data.get("train_path")): cfg for cfg in cfgs}
    for cfg in wanted.values():
        if cfg.data.get("download", False):
            try:
                for split in ("train", "val"):
                    load_images(cfg.data, split)
            except Exception as error:  # its runs will fail with it, the others will not
                print(f"  {cfg.data.dataset} cannot be had: {error}", flush=True)


def estimate(
    cells: Sequence[Cell], batches: int, jobs: int, out: Path, cache: Path | None
) -> Iterator[str]:
    """Time and disk space of runs, a line after the other.

    Args:
        cells: one of each run that is left.
        batches: to time of each kind of run.
        jobs: runs at a time.
        out: the folder that they go to.
        cache: the file of former probes, None to leave no trace.
    """
    device = _device(cells[0].run.cfg)
    if device is None:
        yield "  no estimate: this machine has no GPU"
        return
    machine = hardware(device, 1)
    kinds = {cell.run.fingerprint: kind(cell.run.cfg) for cell in cells}
    # Of each kind the one whose batch is nearest to the paper's.
    by_batch = sorted(cells, key=lambda cell: -abs(cell.run.cfg.optimizer.batch_size - 256))
    examples = {kinds[cell.run.fingerprint]: cell.run.cfg for cell in by_batch}
    probes = Probes(cache, machine)
    new = sum(name not in probes.speeds for name in examples)
    if new:
        yield f"  measuring the speed of {count(new, 'kind')} of run on {machine} ..."
    speeds = probe(examples, batches, probes)
    probes.write()
    yield from _sum_up(cells, [speeds[kinds[cell.run.fingerprint]] for cell in cells], jobs, out)


def _device(cfg: DictConfig) -> torch.device | None:
    if runs_on_cpu(cfg):
        return torch.device("cpu")
    for name, module in (("cuda", torch.cuda), ("mps", torch.backends.mps)):
        if module.is_available():
            return torch.device(name)
    return None


def _sum_up(cells: Sequence[Cell], speeds: Sequence[Speed], jobs: int, out: Path) -> Iterator[str]:
    known = [
        (cell.run, speed) for cell, speed in zip(cells, speeds, strict=True) if not speed.error
    ]
    if known:
        seconds = sum(s.seconds(run.cfg.max_epochs - run.epochs_done) for run, s in known) / jobs
        size = sum(speed.folder_bytes for _, speed in known)
        there = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        yield (
            f"  about {duration(seconds)} for {count(len(known), 'run')}"
            + (f", {jobs} at a time" if jobs > 1 else "")
            + f"; about {_size(size)} of disk, {_size(free)} are free"
            + (" -- TOO LITTLE" if size > free else "")
        )
    for why, number in Counter(speed.error for speed in speeds if speed.error).items():
        yield f"  no estimate for {count(number, 'run')}: {why}"


def _size(count: int) -> str:
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
