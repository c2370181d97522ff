"""Runs whose labels are in a file or lacking, or that hold out a share of their images."""

import json

import numpy as np
import pytest

from simco_methods.config.parse import complete, fingerprint, parse
from simco_methods.data import read_images
from simco_methods.encoder import load_encoder
from simco_methods.evaluation.settings import EvaluationSettings
from simco_methods.host import knn
from simco_methods.runner import evaluate
from simco_methods.runner.train import prepare, pretrain
from tests.data.test_labels import custom
from tests.evaluation.conftest import write_digits
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


SMALL = {"data__val_path": None, "augmentations": quick("digits/simco", None).augmentations}


def test_a_share_of_class_folders_is_validated_on(tmp_path, capsys):
    """And tested on by its evaluations; without it there is no accuracy, and a line says so."""
    folder = write_digits(tmp_path / "digits", 20)
    given = {**SMALL, "data__train_path": str(folder), "knn_eval__offline": True}
    run = pretrain(quick("custom/simco", tmp_path / "run", **given, data__test_share=0.2))
    assert "48 training images, 12 to validate on" in capsys.readouterr().out
    last = json.loads((run / "summary.json").read_text())
    assert {"val_acc1", "val_knn_acc1"} <= last["last_epoch"].keys() and "knn_acc1" in last
    sides = EvaluationSettings().sides(load_encoder(run))
    train, val = read_images(custom(folder, test_share=0.2))
    assert (sides.train.digest(), sides.test.digest()) == (train.digest(), val.digest())
    # It goes on only with the same share.
    for other in (0.4, None):
        changed = {**given, "data__test_share": other}
        with pytest.raises(
            ValueError, match=f"data.test_share: 0.2 there, {other or 'unset'} here"
        ):
            prepare(quick("custom/simco", tmp_path / "run", **changed))
    run = prepare(quick("custom/simco", tmp_path / "other", **given))
    run.fit()
    said = capsys.readouterr().out
    assert "60 training images, none" in said and "note: without data.val_path there is no" in said


def test_labels_of_a_file(tmp_path, capsys):
    folder = write_digits(tmp_path / "digits", 10, classes=range(2))
    rows = [path.relative_to(folder) for path in sorted(folder.glob("*/*"))]
    file = tmp_path / "labels.csv"
    file.write_text("".join(f"{path},class {row % 4}\n" for row, path in enumerate(rows)))
    given = {**SMALL, "data__train_path": str(folder), "data__labels": str(file)}
    run = prepare(quick("custom/simco", tmp_path / "run", **given, data__val_images_per_class=None))
    assert run.model.num_classes == 4
    assert run.fit() == tmp_path / "run"
    assert f"note: labels of {folder}: {file}, columns 1 and 2" in capsys.readouterr().out
    card = load_encoder(tmp_path / "run").card
    assert card.classes == [f"class {row}" for row in range(4)]
    assert str(tmp_path) not in json.dumps(card.to_json())


def test_a_share_needs_classes(tmp_path):
    (write_digits(tmp_path / "a", 4, classes=[0]) / "digit 0").rename(tmp_path / "flat")
    given = {**SMALL, "data__train_path": str(tmp_path / "flat"), "data__test_share": 0.5}
    with pytest.raises(
        ValueError, match="data.test_share=0.5: it is of each class, and .*flat has"
    ):
        prepare(quick("custom/simco", tmp_path / "run", **given))


def test_keys_that_are_left_at_null_make_no_other_run():
    """Runs from before there were these keys are known by the same fingerprint."""
    known = fingerprint(complete(quick("digits/simco", None)))
    for key in ("labels", "val_labels", "test_share"):
        assert fingerprint(complete(quick("digits/simco", None, **{f"data__{key}": None}))) == known
    given = {"data__train_path": "somewhere"}
    whole = fingerprint(complete(quick("custom/simco", None, **given)))
    for key, value in (("labels", "l.csv"), ("test_share", 0.2)):
        cfg = quick("custom/simco", None, **given, **{f"data__{key}": value})
        assert fingerprint(complete(cfg)) != whole
