"""A trained encoder that the tests of the commands on encoders share."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from simco_methods.runner.train import pretrain
from tests.runner.test_pretrain import quick


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory):
    """Folder of a finished run of SimCo on 200 digits, with its checkpoints and summary.json."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    settings = {"data__train_images_per_class": 20, "knn_eval__enabled": False}
    return pretrain(quick("digits/simco", folder, **settings))


def write_digits(folder, per_class=6, first=0, classes=range(3)):
    """Class folders of digits: of each class ``per_class`` images from the ``first`` on."""
    digits = load_digits()
    for label in classes:
        (folder / f"digit {label}").mkdir(parents=True)
        for row in np.flatnonzero(digits.target == label)[first : first + per_class]:
            image = Image.fromarray((digits.images[row] * 15).astype(np.uint8))
            image.save(folder / f"digit {label}" / f"{row:04}.png")
    return folder
