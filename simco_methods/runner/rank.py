"""Which process this is, before there is a process group."""

from __future__ import annotations

import os

from lightning.pytorch.plugins.environments import SLURMEnvironment


def process_rank() -> int:
    """This process's number before a process group exists, from the launcher's environment."""
    # A shell that SLURM gives has its variables too, and starts processes that are not its.
    slurm = ("SLURM_PROCID",) if SLURMEnvironment.detect() else ()
    for name in ("RANK", *slurm, "LOCAL_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0
