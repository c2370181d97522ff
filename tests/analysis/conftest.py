"""Checkpoints of small runs that the tests analyse."""

import pytest

from simco_methods import analyze as command
from simco_methods.analysis.settings import Settings
from simco_methods.runner.train import pretrain
from simco_methods.settings import parse_settings
from tests.runner.test_pretrain import quick

# Small, and yet every anchor and key is a different digit.
SMALL = ["anchors=32", "batches=3", "num_workers=0", "sizes=[8,64,200]", "temperatures=[0.05,0.5]"]


def parsed(arguments):
    return parse_settings("simco-analyze", Settings, arguments)


def analyze(checkpoint, arguments):
    """``simco-analyze CHECKPOINT ARGUMENTS``."""
    return command.analyze(checkpoint, parsed(arguments))


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """``runs(leaf, **changes)``: the checkpoints' folder of a run of two epochs of six batches."""
    done = {}

    def run(leaf, **changes):
        key = (leaf, str(sorted(changes.items())))
        if key not in done:
            folder = tmp_path_factory.mktemp("run")
            settings = {
                "limit_train_batches": 6,
                "data__train_images_per_class": 40,
                "checkpoint__keep_prev": True,
                "knn_eval__enabled": False,
                **changes,
            }
            done[key] = pretrain(quick(leaf, folder, **settings)) / "checkpoints"
        return done[key]

    return run
