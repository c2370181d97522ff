"""Which images an evaluation learns from and tests on, and what is said where they do not do."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from omegaconf import OmegaConf
from sklearn.model_selection import train_test_split

from simco_methods.data import read_images
from simco_methods.data.images import ImageSet
from simco_methods.data.splits import stratified
from simco_methods.encoder import load_encoder
from simco_methods.evaluation.settings import EvaluationSettings, evaluated_data
from simco_methods.evaluation.sides import labelled_folder, read_sides
from simco_methods.settings import parse_settings
from tests.data.test_folders import fill
from tests.evaluation.conftest import write_digits


def custom(train, val=None):
    paths = {"train_path": str(train), "val_path": None if val is None else str(val)}
    return OmegaConf.create({"dataset": "custom", **paths})


def images(*counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    names = [f"class {number}" for number in range(len(counts))]
    return ImageSet(np.zeros((len(labels), 4, 4, 3), np.uint8), labels, names)


# ---- the two sides -------------------------------------------------------------------------------


def test_class_folders_on_both_sides(tmp_path):
    train = write_digits(tmp_path / "train", 5)
    test = write_digits(tmp_path / "test", 2, first=5, classes=[0, 2])
    found = read_sides(custom(train, test), None, None)
    assert found.classes == ["digit 0", "digit 1", "digit 2"]
    assert found.train.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    # Numbered as in training, not by what turns up.
    assert found.test.labels.tolist() == [0, 0, 2, 2]
    assert found.notes == ["the test images lack 1 class(es): digit 1"]


def test_digits_have_a_split_of_their_own():
    found = read_sides(OmegaConf.create({"dataset": "digits"}), None, None)
    assert (len(found.train), len(found.test), len(found.classes)) == (1437, 360, 10)
    assert not found.notes and found.name == "digits"


def test_a_share_is_held_out_the_same_for_everybody(tmp_path):
    folder = write_digits(tmp_path / "all", 10)
    found = read_sides(custom(folder), 0.2, None)
    assert np.bincount(found.test.labels).tolist() == [2, 2, 2]
    assert np.bincount(found.train.labels).tolist() == [8, 8, 8]
    every = sorted(str(path) for path in folder.rglob("*.png"))
    assert sorted([*found.train.images, *found.test.images]) == every
    labels = [int(path.split("digit ")[1][0]) for path in every]
    kept, _ = train_test_split(np.arange(30), train_size=0.8, stratify=labels, random_state=42)
    assert found.train.images == [every[row] for row in sorted(kept)]
    assert found.notes == ["no data.val_path: 0.2 of each class is held out to test on"]


def test_a_fraction_is_of_the_training_images_and_solo_learn_s(tmp_path):
    folder = write_digits(tmp_path / "all", 20)
    test = write_digits(tmp_path / "test", 2, first=20)
    whole = read_sides(custom(folder, test), None, 1.0)
    found = read_sides(custom(folder, test), None, 0.1)
    assert np.bincount(found.train.labels).tolist() == [2, 2, 2] and len(found.test) == 6
    assert found.notes == ["fraction=0.1: 6 of 60 training images"] and not whole.notes
    rows, _ = train_test_split(
        np.arange(60), train_size=0.1, stratify=whole.train.labels, random_state=42
    )
    assert found.train.images == [whole.train.images[row] for row in rows]


def test_images_without_labels_are_left_out(monkeypatch):
    """STL-10 has 100,000 of them among its training images."""

    def load_images(data, split, classes=None):
        found = images(4, 4)
        if split == "train":
            found.labels[::2] = -1
        return found

    monkeypatch.setattr("simco_methods.data.datasets.load_images", load_images)
    found = read_sides(custom("there", "too"), None, None)
    assert found.train.labels.tolist() == [0, 0, 1, 1] and len(found.train.images) == 4
    assert len(found.test) == 8


def test_no_label_at_all(monkeypatch):
    def load_images(data, split, classes=None):
        found = images(4, 4)
        found.labels[:] = -1
        return found

    monkeypatch.setattr("simco_methods.data.datasets.load_images", load_images)
    with pytest.raises(ValueError, match="^no image of data.train_path=there has a label$"):
        read_sides(custom("there", "too"), None, None)


@pytest.mark.parametrize(
    "train, val, test_share, fraction, error, message",
    [
        ("three", None, None, None, ValueError, "nothing to test on: set data.val_path .* or test"),
        ("three", None, 1, None, ValueError, "test_share=1: a share of 0 of .* images"),
        ("three", "three", 0.2, None, ValueError, "test_share=0.2: custom has images .* data.val_"),
        ("nowhere", None, 0.2, None, FileNotFoundError, "there is no folder nowhere"),
        ("three", "nowhere", None, None, FileNotFoundError, "there is no folder nowhere"),
        ("flat", None, 0.2, None, FileNotFoundError, "flat: an evaluation needs a folder for each"),
        ("three", "flat", None, None, FileNotFoundError, "flat: an evaluation needs a folder for"),
        ("one", "one", None, None, ValueError, r"are of one class \(digit 1\); to tell classes"),
        ("one", "three", None, None, ValueError, "three has the class folders digit 0, digit 2"),
        ("three", None, 0.01, None, ValueError, "share of 0.99 of 30 images in 3 classes leaves 1"),
        ("three", "three", None, 0.05, ValueError, "share of 0.05 of 30 images in 3 classes .* 1 "),
    ],
)
def test_what_does_not_do(train, val, test_share, fraction, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path / "three", 10)
    write_digits(tmp_path / "one", 10, classes=[1])
    (write_digits(tmp_path / "x", 2, classes=[3]) / "digit 3").rename("flat")
    with pytest.raises(error, match=message) as caught:
        read_sides(custom(train, val), test_share, fraction)
    assert "no_labels" not in str(caught.value)  # which would not help here


def test_a_root_with_the_parts_of_a_split_is_told_its_settings(tmp_path):
    for part in ("train", "test"):
        write_digits(tmp_path / part, 2)
    wanted = f": set data.train_path={tmp_path}/train data.val_path={tmp_path}/test$"
    for share in (None, 0.5):
        with pytest.raises(ValueError, match=wanted):
            read_sides(custom(tmp_path), share, None)


def test_a_class_of_one_image_cannot_be_shared():
    with pytest.raises(ValueError, match="class class 1 has one image: it cannot be on both"):
        stratified(images(9, 1), 0.5)
    assert np.bincount(stratified(images(8, 2), 0.5).labels).tolist() == [4, 1]


# ---- which data ----------------------------------------------------------------------------------

TRAINED = {
    "dataset": "custom",
    "train_path": "a",
    "val_path": "b",
    "train_images_per_class": 9,
    "fraction": 0.5,
    "num_workers": 4,
}
IMAGES = {k: v for k, v in TRAINED.items() if k not in ("fraction", "num_workers")}


@pytest.mark.parametrize(
    "given, expected",
    [
        # As it was trained, but for what is of a training alone.
        ({}, IMAGES),
        ({"val_path": "c"}, {**IMAGES, "val_path": "c"}),
        # Of other training images nothing is what it was.
        ({"train_path": "c"}, {"dataset": "custom", "train_path": "c"}),
        ({"dataset": "cifar10"}, {"dataset": "cifar10"}),
        (
            {"dataset": "custom"},
            {
                k: TRAINED[k]
                for k in ("dataset", "train_path", "val_path", "train_images_per_class")
            },
        ),
    ],
)
def test_what_is_evaluated_on(given, expected):
    found = evaluated_data(OmegaConf.create(TRAINED), OmegaConf.create(given))
    assert found == expected


@pytest.mark.parametrize("key", ["fraction", "no_labels", "num_workers", "loader"])
def test_keys_of_a_training_alone_are_refused(key):
    with pytest.raises(ValueError, match=f"^data.{key} is no key of an evaluation.*data.dataset,"):
        evaluated_data(OmegaConf.create(TRAINED), OmegaConf.create({key: TRAINED.get(key, True)}))


def test_images_that_cannot_be_read_are_left_out(tmp_path):
    write_digits(tmp_path / "a", 4)
    bad = next((tmp_path / "a").glob("*/*"))
    bad.write_bytes(b"no image")
    data = {"dataset": "custom", "train_path": str(tmp_path / "a"), "on_error": "skip"}
    sides = read_sides(OmegaConf.create(data), 0.5, None)
    assert len(sides.train) + len(sides.test) == 11
    assert str(bad) not in [*sides.train.images, *sides.test.images]
    assert any(f"{bad.name} (it is none of" in note for note in sides.notes)


def test_without_a_training_that_is_known():
    none = OmegaConf.create({})
    with pytest.raises(ValueError, match="^which images"):
        evaluated_data(none, none)
    found = evaluated_data(none, OmegaConf.create({"train_path": "c"}))
    assert found.dataset == "custom"


def test_an_encoder_that_was_trained_without_labels():
    trained = OmegaConf.create({**TRAINED, "no_labels": True})
    with pytest.raises(ValueError, match="without labels; name labelled ones by data.dataset=cust"):
        evaluated_data(trained, OmegaConf.create({}))
    found = evaluated_data(trained, OmegaConf.create({"train_path": "c"}))
    assert found.train_path == "c"


def test_the_settings_of_a_command_reach_the_images(digits_run):
    def sides(*arguments):
        return parse_settings("x", EvaluationSettings, arguments).sides(load_encoder(digits_run))

    assert len(sides().train) == 200 and len(sides().test) == 360
    assert len(sides("fraction=0.1").train) == 20
    assert len(sides("data.train_images_per_class=7").train) == 70


def test_what_was_held_out_of_a_training_is_tested_on(tmp_path):
    folder = write_digits(tmp_path / "all", 10)
    encoder = SimpleNamespace(card=SimpleNamespace(settings={}))
    data = {"dataset": "custom", "train_path": str(folder), "val_path": None, "test_share": 0.3}
    encoder.card.settings["data"] = {**data, "no_labels": False, "num_workers": 1}
    train, val = read_images(OmegaConf.create(data))

    def sides(*arguments):
        return parse_settings("x", EvaluationSettings, arguments).sides(encoder)

    own, other = sides(), sides("test_share=0.1")
    assert (own.train.images, own.test.images) == (train.images, val.images)
    assert len(other.test) == 3
    assert (
        "held out data.test_share=0.3" in other.notes[-1] and "held out data" not in own.notes[-1]
    )
    few = sides("data.train_images_per_class=5")
    assert "images, data.train_images_per_class=5 tests on some that" in few.notes[-1]
    test = write_digits(tmp_path / "test", 2, first=10)
    assert len(sides(f"data.val_path={test}").test) == 6
    of_others = sides(f"data.val_path={test}", "data.train_images_per_class=5")
    assert len(of_others.train) == 15 and not of_others.notes
    with pytest.raises(ValueError, match="^there is nothing to test on: set data.val_path"):
        sides(f"data.train_path={folder}")
    with pytest.raises(ValueError, match=r"^data.test_share is no .* \(the setting test_share= is"):
        sides("data.test_share=0.1")


def test_what_cannot_be_read_does_not_change_what_is_held_out(tmp_path):
    """A training leaves such images out after the split, and so does its evaluation."""
    folder = write_digits(tmp_path / "all", 10)
    data = custom(folder)
    before = read_sides(data, 0.2, None)
    bad = before.train.images[0]
    Path(bad).write_bytes(b"")
    after = read_sides(OmegaConf.merge(data, {"on_error": "skip"}), 0.2, None)
    assert after.test.images == before.test.images
    assert after.train.images == before.train.images[1:]


def test_an_encoder_trained_without_labels_is_evaluated_with_those_of_a_file(tmp_path):
    flat = fill(tmp_path / "flat", *(f"{row}.png" for row in range(6)))
    (tmp_path / "l.csv").write_text("".join(f"{row}.png,{'ab'[row % 2]}\n" for row in range(6)))
    trained = OmegaConf.create(
        {"dataset": "custom", "train_path": str(flat), "val_path": None, "no_labels": True}
    )
    given = OmegaConf.create({"labels": str(tmp_path / "l.csv")})
    found = read_sides(evaluated_data(trained, given), 0.5, None)
    assert found.classes == ["a", "b"] and len(found.train) + len(found.test) == 6


def test_where_results_go(monkeypatch, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "last.ckpt").write_text("")
    settings = EvaluationSettings()
    assert settings.out_folder(str(tmp_path / "run"), "knn") == tmp_path / "run" / "knn"
    assert settings.out_folder(str(tmp_path / "last.ckpt"), "knn") == tmp_path / "last-knn"
    assert str(EvaluationSettings(out="x").out_folder(str(tmp_path / "run"), "knn")) == "x"
    taken = str(tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match="last.ckpt is no folder; set out=FOLDER"):
        EvaluationSettings(out=taken).out_folder("run", "knn")
    with pytest.raises(ValueError, match="last.ckpt is no folder; set out=FOLDER"):
        EvaluationSettings(out=f"{taken}/below/it").out_folder("run", "knn")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path} may not be written to; set out=FOLDER"):
        EvaluationSettings(out=str(tmp_path / "new" / "er")).out_folder("run", "knn")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "run"]


def test_a_folder_without_class_folders_is_told_what_it_needs(tmp_path):
    folder = write_digits(tmp_path / "a", 2, classes=[0, 1]) / "digit 0"
    needed = "an evaluation needs a folder for each class$"
    with pytest.raises(FileNotFoundError, match=needed):
        labelled_folder(str(folder), ["digit 0"], "raise", [])
    next(folder.iterdir()).rename(tmp_path / "a" / "loose.png")
    with pytest.raises(ValueError, match=f"holds 1 images beside its class folders.*{needed}"):
        labelled_folder(str(tmp_path / "a"), ["digit 0", "digit 1"], "raise", [])
