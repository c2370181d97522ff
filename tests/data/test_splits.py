"""Parts of a split in one root, and shares that are held out of the training images."""

import shlex

import numpy as np
import pytest
from omegaconf import OmegaConf
from sklearn.model_selection import train_test_split

from simco_methods.data import ImageSet, has_validation, load_images, read_images
from simco_methods.data.folders import SplitFolders
from simco_methods.data.splits import hold_out, split_parts
from tests.data.test_folders import fill


def custom(train, **keys):
    return OmegaConf.create({"dataset": "custom", "train_path": str(train), **keys})


@pytest.mark.parametrize(
    "names, val",
    [
        (("train", "val"), "val"),
        (("Train", "Test"), "Test"),
        (("training", "VALID", "test"), "VALID"),
        (("TRAIN", "validation", "meta"), "validation"),
    ],
)
def test_a_root_with_the_parts_of_a_split_is_refused(names, val, tmp_path):
    """With the settings to use, at every key, with labels and without."""
    root = fill(tmp_path, *(f"{name}/{label}/0.png" for name in names for label in ("cat", "dog")))
    train = f"data.train_path={root}/{names[0]}"
    both = f"{train} data.val_path={root}/{val}"
    for data, split, wanted in (
        (custom(root), "train", both),
        (custom(root, no_labels=True), "train", train),
        (custom(root, val_path=f"{root}/{val}"), "train", train),
        (custom(root / names[0], val_path=str(root)), "val", f"data.val_path={root}/{val}"),
    ):
        with pytest.raises(SplitFolders) as caught:
            load_images(data, split, ["cat", "dog"])
        assert str(caught.value).endswith(f": set {wanted}")
        assert str(root) in caught.value.fault and "\n" not in str(caught.value)


def test_classes_that_are_called_so_are_no_split(tmp_path):
    fill(tmp_path, "vehicles/train/0.png", "vehicles/ship/0.png", "exams/test/0.png")
    (tmp_path / "vehicles/val").mkdir()  # without an image
    for name in ("vehicles", "exams"):
        load_images(custom(tmp_path / name), "train")
    assert list(split_parts(tmp_path / "vehicles")) == ["train"]


def test_a_share_is_held_out_of_the_training_images(tmp_path):
    """scikit-learn's stratified split by a fixed seed, which evaluations have, too."""
    root = fill(tmp_path, *(f"{name}/{row:02}.png" for name in "abc" for row in range(10)))
    data = custom(root, test_share=0.2, val_path=None)
    train, val = read_images(data)
    every = load_images(custom(root), "train")
    kept, _ = train_test_split(
        np.arange(30), train_size=0.8, stratify=every.labels, random_state=42
    )
    assert train.images == [every.images[row] for row in sorted(kept)]
    assert sorted([*train.images, *val.images]) == every.images
    assert np.bincount(val.labels).tolist() == [2, 2, 2] and val.classes == ["a", "b", "c"]
    assert has_validation(data) and not has_validation(custom(root))
    for split, images in (("train", train), ("val", val)):
        assert load_images(data, split).digest() == images.digest()


def test_what_is_held_out_depends_on_nothing_else(tmp_path):
    """Neither on a share of the training images, nor on how many are validated on."""
    root = fill(tmp_path, *(f"{name}/{row:02}.png" for name in "abc" for row in range(10)))
    data = custom(root, test_share=0.2)
    train, val = read_images(data)
    fewer, same = read_images(OmegaConf.merge(data, {"fraction": 0.5}))
    assert same.images == val.images and len(fewer) == 12 and set(fewer.images) < set(train.images)
    _, first = read_images(OmegaConf.merge(data, {"val_images_per_class": 1}))
    assert len(first) == 3 and set(first.images) < set(val.images)
    some, others = read_images(OmegaConf.merge(data, {"train_images_per_class": 5}))
    assert len(some) == 12 and len(others) == 3


def test_images_without_a_label_stay_to_be_trained_on():
    labels = np.repeat([0, 1, -1], [10, 10, 5])
    images = ImageSet(np.arange(25), labels, ["a", "b"])
    train, test = hold_out(images, 0.2)
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert (
        sorted([*train.images, *test.images]) == list(range(25)) and (train.labels < 0).sum() == 5
    )
    only = hold_out(images.select(np.arange(20)), 0.2)[1]
    assert only.images.tolist() == test.images.tolist()


def test_a_share_that_cannot_be_held_out():
    images = ImageSet(np.arange(4), np.array([0, 0, 0, 1]), ["a", "b"])
    with pytest.raises(ValueError, match="^test_share=0.5: class b has one image: it cannot be on"):
        hold_out(images, 0.5)
    images.labels[:] = -1
    with pytest.raises(ValueError, match="^test_share=0.5: a share of each class, and no image"):
        hold_out(images, 0.5)


def test_images_that_are_trained_and_validated_on_are_counted(tmp_path):
    root = fill(tmp_path / "train", *(f"{name}/{row}.png" for name in "ab" for row in range(3)))
    fill(tmp_path / "val", "a/0.png")
    (tmp_path / "val/b").symlink_to(root / "b")
    said = "3 of 4 images to validate on are training images, too: accuracies are not of new images"
    assert read_images(custom(root, val_path=str(tmp_path / "val")))[1].notes == [said]
    assert read_images(custom(root, test_share=0.4))[1].notes == []


def test_classes_that_may_lie_one_folder_below(tmp_path):
    """PACS: domains, and in each of them the classes."""
    fill(tmp_path, *(f"{domain}/{name}/0.png" for domain in ("art", "photo") for name in "abc"))
    (note,) = load_images(custom(tmp_path), "train").notes
    assert "(art, photo), and each of them has the same subfolders (a, b, c)" in note
    assert load_images(custom(tmp_path / "art"), "train").notes == []


def test_settings_can_be_pasted_back(tmp_path):
    root = fill(tmp_path / "my set", "train/a/0.png", "test/0.png")
    (root / "test.csv").write_text("0.png,a")
    with pytest.raises(SplitFolders) as caught:
        load_images(custom(root), "train")
    words = shlex.split(str(caught.value).partition(": set ")[2])
    assert words == [
        f"data.train_path={root}/train",
        f"data.val_path={root}/test",
        f"data.val_labels={root}/test.csv",
    ]
