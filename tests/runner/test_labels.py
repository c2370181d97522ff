"""Runs of which some images have a label, or none, though the config does not say so."""

import json

import numpy as np
import pytest

from simco_methods.config.parse import complete, parse
from simco_methods.data import read_images
from simco_methods.host import knn
from simco_methods.runner import evaluate
from simco_methods.runner.train import prepare
from tests.runner.test_pretrain import quick, rows


def run(folder, leaf, labelled, labelled_val=slice(None)):
    """A run of which only the named images are labelled."""
    cfg = quick(leaf, folder, knn_eval__offline=True)
    images = read_images(parse(complete(cfg.copy()), 1).data)
    for side, kept in zip(images, (labelled, labelled_val), strict=True):
        labels = np.full_like(side.labels, -1)
        labels[kept] = side.labels[kept]
        side.labels = labels
    prepare(cfg, images).fit()
    return json.loads((folder / "summary.json").read_text())


def test_without_any_label_there_is_no_accuracy(tmp_path):
    """Absent in metrics.csv and summary.json, not 0 and not NaN; the loss is there."""
    summary = run(tmp_path / "run", "digits/simco", slice(0), slice(0))
    first, last = rows(tmp_path / "run")
    assert float(last["train_nce_loss"]) == summary["last_epoch"]["train_nce_loss"] > 0
    assert first["train_nce_loss"] != last["train_nce_loss"]
    for names in (first, summary, summary["last_epoch"]):
        assert not [name for name in names if "acc" in name or "class_loss" in name]


@pytest.mark.parametrize("leaf", ["digits/simco", "digits/mocov2"])
def test_a_tenth_of_the_labels(leaf, tmp_path, monkeypatch):
    """The banks of both kNN hold the labelled rows only."""
    banks = {"online": [], "offline": []}

    def spy(module, name):
        original = module.knn_accuracy

        def knn_accuracy(features, targets, *args, **kwargs):
            banks[name].append(targets)
            return original(features, targets, *args, **kwargs)

        monkeypatch.setattr(module, "knn_accuracy", knn_accuracy)

    spy(knn, "online")
    spy(evaluate, "offline")
    tenth = slice(None, None, 10)
    summary = run(tmp_path / "run", leaf, tenth)
    assert {"val_acc1", "val_knn_acc1", "train_acc1"} <= summary["last_epoch"].keys()
    assert [len(bank) for bank in banks["offline"]] == [144, 144]
    views = 2 if leaf == "digits/simco" else 1
    assert len(banks["online"]) == 2
    for bank in banks["online"]:
        assert 0 < len(bank) < 3 * 16 * views / 2 and len(bank) % views == 0
    assert all((bank >= 0).all() for bank in banks["online"] + banks["offline"])
