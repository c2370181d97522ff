"""Running cells: each in a process of its own, by a Hydra launcher, never twice at a time."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig

from simco_methods.files import lock, write_text
from simco_methods.overrides import quoted_value

INTERRUPTED = 130
# The launcher of the pack's own, over hydra-submitit-launcher's.
_NAMES = {"serial": "basic", "slurm": "simco_slurm", "submitit": "simco_slurm"}
_NEEDS = {
    "joblib": "hydra_joblib_launcher",
    "simco_slurm": "hydra_submitit_launcher",
    "submitit_slurm": "hydra_submitit_launcher",
    "submitit_local": "hydra_submitit_launcher",
}


def launcher_name(name: str) -> str:
    """Hydra's name of a launcher.

    Raises:
        ValueError: one that is not there, or whose package is not, with what installs it.
    """
    name = _NAMES.get(name, name)
    package = _NEEDS.get(name)
    if package and importlib.util.find_spec(f"hydra_plugins.{package}") is None:
        raise ValueError(
            f"launcher {name} needs the package {package.replace('_', '-')}: "
            'pip install "simco-methods[launchers]"'
        )
    try:
        with hydra.initialize_config_module("solo_configs", version_base="1.3"):
            hydra.compose(overrides=[f"hydra/launcher={name}"], return_hydra_config=True)
    except HydraException as error:
        raise ValueError(f"launcher {name}: {error}") from error
    return name


def launch(folders: Sequence[Path], out: Path, launcher: str, settings: Sequence[str]) -> None:
    """Runs the cells in ``folders`` by a Hydra launcher; returns when all have ended.

    Args:
        folders: of prepared cells.
        out: the folder of all results.
        launcher: see :func:`launcher_name`.
        settings: overrides of Hydra's own keys, ``hydra.launcher.partition=gpu``.
    """
    cells = ",".join(quoted_value(folder.name) for folder in folders)
    sys.argv[1:] = [
        "--multirun",
        f"+cells={quoted_value(str(out / 'cells'))}",
        f"+cell={cells}",
        f"hydra/launcher={launcher}",
        f"hydra.sweep.dir={quoted_value(str(out / 'launcher'))}",
        "hydra.sweep.subdir=.",
        "hydra.output_subdir=null",
        "hydra.job.name=simco-table",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
        *settings,
    ]
    _job()


@hydra.main(version_base="1.3", config_path="pkg://solo_configs", config_name=None)
def _job(cfg: DictConfig) -> None:
    run_cell(Path(cfg.cells) / cfg.cell)


def run_cell(folder: Path) -> None:
    """Runs one cell to its end, unless another process is at it.

    What it says goes to ``log.txt``, the reason of a failure to ``failed.txt`` beside it.
    """
    failure = folder / "failed.txt"
    try:
        descriptor = lock(folder / "lock")
        if descriptor is None:
            return
        failure.unlink(missing_ok=True)
    except OSError as error:
        write_text(failure, f"{error}\n")
        return
    # The launcher's SLURM step is not the run's: Lightning would take it for one of its processes.
    env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    try:
        with open(folder / "log.txt", "a", encoding="utf-8") as log:
            print(f"---- {time.strftime('%Y-%m-%d %H:%M:%S')}", file=log, flush=True)
            start = log.tell()
            child = subprocess.Popen(
                [sys.executable, "-m", "simco_methods.tables.cell", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**env, "PYTHONUNBUFFERED": "1"},
                pass_fds=[descriptor],
            )
            code = _wait(child)
        if code and code not in (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM):
            write_text(failure, _reason(folder / "log.txt", start, code))
    except OSError as error:
        write_text(failure, f"{error}\n")
    finally:
        os.close(descriptor)


def _wait(child: subprocess.Popen) -> int:
    try:
        return child.wait()
    except BaseException:
        # Ctrl-C reaches the run by itself, a signal to this process does not. What it has trained
        # is in its last checkpoint.
        child.terminate()
        child.wait()
        raise


def _reason(log: Path, start: int, code: int) -> str:
    with open(log, "rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").strip().splitlines()
    last = lines[-1].strip() if lines else "no word of it"
    if code < 0:
        name = signal.Signals(-code).name
        last = f"killed by {name}{' (out of memory?)' if code == -9 else ''}, after: {last}"
    return f"{last}\n"
