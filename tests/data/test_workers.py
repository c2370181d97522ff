"""Workers end with the process that asked for them, however that ends."""

import subprocess
import sys

from tests.helpers import ROOT

SCRIPT = """
import importlib.util
import sys
from torch.utils.data import DataLoader

spec = importlib.util.spec_from_file_location("workers", sys.argv[1])
workers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(workers)
loader = DataLoader(
    list(range(8)),
    num_workers=2,
    persistent_workers=True,
    worker_init_fn=workers.leave_signals_to_the_run,
)
iterator = iter(workers.with_workers(loader))
next(iterator)
raise RuntimeError("uncaught")
"""


def test_an_uncaught_error_does_not_wait_for_workers_for_ever():
    file = ROOT / "simco_methods" / "data" / "workers.py"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(file)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1 and "uncaught" in done.stderr
