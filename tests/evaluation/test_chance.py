"""An encoder that tells no images apart is said to, whatever measures it."""

import numpy as np
import pytest
import torch

from simco_methods.evaluation.accuracy import chance_note, equal_features_note
from simco_methods.evaluation.knn import knn
from simco_methods.evaluation.knn_settings import KNNSettings
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.transfer import transfer
from simco_methods.evaluation.transfer_settings import TransferSettings
from simco_methods.linear import linear
from simco_methods.runner import train
from simco_methods.settings import parse_settings
from tests.evaluation.conftest import write_digits
from tests.runner.test_pretrain import quick

EQUAL = "note: the features of all 18 images are equal; look at the loss"


def of(rows):
    return np.array(rows)


@pytest.mark.parametrize(
    "accuracy, classes, confusion, why",
    [
        (10.0, 10, None, "exactly chance for 10 classes"),
        (float(np.float32(100 / 3)), 3, None, "exactly chance for 3 classes"),
        (25.0, 2, of([[3, 0], [9, 0]]), "all test images are taken for one class"),
        (50.0, 2, of([[3, 1], [3, 1]]), "exactly chance for 2 classes"),
    ],
)
def test_chance_is_said(accuracy, classes, confusion, why):
    (line,) = chance_note("kNN", accuracy, classes, confusion)
    assert line.startswith(f"kNN {accuracy:.2f} %: {why}; look at the loss")


@pytest.mark.parametrize(
    "accuracy, classes, confusion",
    [
        (10.2, 10, None),
        (100.0, 1, None),
        (100.0, 2, of([[3, 0], [0, 0]])),  # there are no others to test on
        (75.0, 2, of([[3, 1], [1, 3]])),
    ],
)
def test_nothing_is_said_of_another_accuracy(accuracy, classes, confusion):
    assert chance_note("kNN", accuracy, classes, confusion) == []


def test_equal_features():
    row = torch.randn(1, 8)
    assert equal_features_note(row.repeat(5, 1))[0].startswith("the features of all 5 images are e")
    assert equal_features_note(torch.zeros(5, 8)) != []
    assert equal_features_note(row.repeat(5, 1) + 1e-3 * torch.randn(5, 8)) == []
    assert equal_features_note(row) == equal_features_note(torch.full((3, 2), torch.nan)) == []


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "set"
    write_digits(folder / "train"), write_digits(folder / "val", first=6)
    return folder


@pytest.fixture
def equal(monkeypatch):
    """Untrained encoders whose features are all 0."""
    build = train.build_model

    def without_weights(parsed):
        model = build(parsed)
        for parameter in model.backbone.parameters():
            parameter.data.zero_()
        return model

    monkeypatch.setattr(train, "build_model", without_weights)


def trained(images, folder):
    changes = {
        "data__train_path": str(images / "train"),
        "data__val_path": str(images / "val"),
        "optimizer__lr": 0,
        "max_epochs": 1,
        "knn_eval__offline": True,
        "optimizer__batch_size": 6,
        "augmentations": quick("digits/simco", None).augmentations,
    }
    return train.pretrain(quick("custom/simco", folder, **changes))


def test_an_encoder_of_equal_features_is_noted_by_all(images, tmp_path, equal, capsys):
    run = trained(images, tmp_path / "run")
    said = capsys.readouterr().out
    assert EQUAL in said and "note: kNN accuracy 33.33 %: exactly chance for 3 classes" in said

    knn(str(run), parse_settings("x", KNNSettings, ["num_workers=0"]))
    said = capsys.readouterr().out
    assert EQUAL in said and "note: kNN accuracy 33.33 %: all test images are taken for one" in said

    quickly = ["num_workers=0", "epochs=1", "lr=[0.1]"]
    linear(str(run), parse_settings("x", LinearSettings, quickly))
    assert (
        "note: linear accuracy 33.33 %: all test images are taken for one"
        in capsys.readouterr().out
    )

    given = [*quickly, f"data={images.parent}", "datasets=set", "views=1"]
    transfer(str(run), parse_settings("x", TransferSettings, given))
    said = capsys.readouterr().out
    assert EQUAL in said and "  note: kNN accuracy 33.33 %: exactly chance for 3 classes" in said
    assert "  note: linear accuracy 33.33 %: all test images are taken for one class" in said
