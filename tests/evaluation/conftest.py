"""A trained encoder that the tests of the commands on encoders share."""

import pytest

from simco_methods.runner.train import pretrain
from tests.runner.test_pretrain import quick


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory):
    """Folder of a finished run of SimCo on 200 digits, with its checkpoints and summary.json."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    settings = {"data__train_images_per_class": 20, "knn_eval__enabled": False}
    return pretrain(quick("digits/simco", folder, **settings))
