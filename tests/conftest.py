import os
import warnings

import pytest

from simco_methods.host import HOST

# Workers and processes share the machine's cores with pytest: no pool of threads in each.
os.environ.setdefault("OMP_NUM_THREADS", "2")


def pytest_report_header(config):
    return f"simco-methods host: {HOST}"


@pytest.fixture(autouse=True)
def _expected_warnings():
    with warnings.catch_warnings():
        # A step called without a trainer, and data sets of a few images: on purpose, here.
        for message in (
            ".*`self.trainer` reference is not registered.*",
            ".*Total length of `.*` across ranks is zero.*",
            ".*does not have many workers.*",
            ".*the embedding.*",
            ".*isinstance.treespec.*",
        ):
            warnings.filterwarnings("ignore", message=message)
        yield
