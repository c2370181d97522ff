import gc
import os
import warnings

import pytest
import torch

from simco_methods.choice import ABSENT, solo_learn_problem
from simco_methods.host import HOST

# The models are tiny: on a busy machine threads that wait for each other cost more than they give.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start


def pytest_report_header(config):
    return f"simco-methods host: {HOST}"


def pytest_runtest_setup(item):
    if item.get_closest_marker("solo_learn"):
        problem = solo_learn_problem()
        if problem is not None:
            pytest.skip(problem or ABSENT)


@pytest.fixture
def wandb(monkeypatch):
    """W&B, silent, with nothing of its service left from before or for after."""
    module = pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    module.teardown()
    yield module
    gc.collect()
    module.teardown()


@pytest.fixture(autouse=True)
def _expected_warnings():
    with warnings.catch_warnings():
        # A step called without a trainer, and data sets of a few images: on purpose, here.
        for message in (
            ".*`self.trainer` reference is not registered.*",
            ".*Total length of `.*` across ranks is zero.*",
            ".*does not have many workers.*",
            ".*the embedding.*",
            ".*at its chance level.*",
            ".*isinstance.treespec.*",
        ):
            warnings.filterwarnings("ignore", message=message)
        yield
