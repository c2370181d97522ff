"""Label files: which layouts are read, and what is said of rows that do not fit."""

import os

import numpy as np
import pytest
from omegaconf import OmegaConf

from simco_methods.data import load_images, read_images
from simco_methods.data.datasets import class_names, odd_splits
from simco_methods.data.labels import labelled_by_file
from tests.data.test_folders import fill


def custom(train, **keys):
    return OmegaConf.create({"dataset": "custom", "train_path": str(train), **keys})


def found(images):
    """Class by file name."""
    names = [os.path.basename(path) for path in images.images]
    classes = [images.classes[label] if label >= 0 else None for label in images.labels]
    return dict(zip(names, classes, strict=True))


EXPECTED = {"a.png": "cat", "b c.png": "dog", "d.png": "cat"}


@pytest.mark.parametrize(
    "text, columns",
    [
        ("file,label\na.png,cat\nb c.png,dog\nsub/d.png,cat\n", "columns file and label"),
        ("a.png,cat\r\nb c.png,dog\r\n\r\nsub/d.png,cat", "columns 1 and 2"),
        ("sub/d.png;cat\na.png;cat\nb c.png;dog", "columns 1 and 2"),
        ("a.png\tcat\t0\t9\nb c.png\tdog\t0\t9\nsub/d.png\tcat\t0\t9\n", "columns 1 and 2"),
        (
            "Width,ClassId,Path\n9,cat,set/a.png\n9,dog,set/b c.png\n9,cat,./set/sub/d.png\n",
            "columns Path and ClassId",
        ),
        (
            '"image", breed\n"a.png", cat\n"b c.png", dog\n"sub/d.png", cat\n',
            "columns image and breed",
        ),
        (
            "\ufeffFile Name;class\na.png;cat\nb c.png;dog\nsub/d.png;cat\n",
            "columns File Name and class",
        ),
        ("a.png cat\nROOT/set/sub/d.png cat\n'b c.png' dog\n", None),
        ("a.png,cat\na.png,cat\nb c.png,dog\nsub/../sub/d.png,cat\n", "columns 1 and 2"),
    ],
)
def test_a_file_of_any_of_these_forms(text, columns, tmp_path):
    root = fill(tmp_path / "set", "a.png", "b c.png", "sub/d.png")
    file = tmp_path / "labels.txt"
    file.write_text(text.replace("ROOT", str(tmp_path)).replace("'", '"'), encoding="utf-8")
    images = labelled_by_file(root, file)
    assert found(images) == EXPECTED and images.classes == ["cat", "dog"]
    # In the order of the folder, whatever that of the rows is.
    assert images.images == sorted(images.images)
    if columns:
        assert f"labels of {root}: {file}, {columns}" in images.notes[0]


def test_images_without_a_row_or_a_label(tmp_path):
    root = fill(tmp_path / "set", "a.png", "b.png", "c.png", "d.png")
    file = tmp_path / "labels.csv"
    file.write_text("file,label\na.png,cat\nb.png,\n")
    images = labelled_by_file(root, file)
    assert found(images) == {"a.png": "cat", "b.png": None}
    assert images.notes[-1] == f"2 of 4 images in {root} have no row in {file} and are left out"
    assert class_names(custom(root, labels=str(file))) == ["cat"]


def test_a_class_of_files_that_are_not_read_is_named(tmp_path):
    root = fill(tmp_path / "set", "a.png", "b.psd", "c.psd", "d.psd")
    fill(tmp_path / "test", "e.psd")
    file = tmp_path / "labels.csv"
    rows = "set/a.png,cat\nset/b.psd,cat\nset/c.psd,dog\nset/d.psd,dog\ntest/e.psd,eel\n"
    file.write_text("file,label\n" + rows)
    images = labelled_by_file(root, file)
    assert found(images) == {"a.png": "cat"} and images.classes == ["cat"]
    assert images.notes[:2] == [
        f"{root}: left out: 3 .psd",
        f"{file}: classes without a readable image, left out: dog (2 .psd)",
    ]


@pytest.mark.parametrize(
    "text, lines",
    [
        ("file,label\na.png,cat\nx.png,dog\n", ["line 3: there is no x.png in ROOT"]),
        (
            "a.png,cat\nb.png,dog\na.png,dog\nb.png,\n",
            [
                "line 3: a.png is of class dog, by line 1 of cat",
                "line 4: b.png is of class none, by line 2 of dog",
            ],
        ),
        ("a.png,cat\nb.png\n", ["line 2: 1 column(s), there should be 2 or more"]),
        ("id,age,breed\na.png,3,cat\n", ["line 1: there is no id in ROOT"]),
    ],
)
def test_rows_that_do_not_fit_are_named_by_their_lines(text, lines, tmp_path):
    root = fill(tmp_path / "set", "a.png", "b.png")
    file = tmp_path / "labels.csv"
    file.write_text(text)
    with pytest.raises(ValueError) as caught:
        labelled_by_file(root, file)
    head, *said = str(caught.value).splitlines()
    hint = "" if text.startswith("file,") else " (it has no header such as file,label)"
    assert head == f"{file} cannot be taken as labels{hint}:"
    assert [line.strip() for line in said] == [line.replace("ROOT", str(root)) for line in lines]


def test_many_faults_are_counted(tmp_path):
    root = fill(tmp_path / "set", "a.png")
    file = tmp_path / "labels.csv"
    file.write_text("file,label\n" + "".join(f"{row}.png,cat\n" for row in range(2000)))
    with pytest.raises(ValueError) as caught:
        labelled_by_file(root, file)
    said = str(caught.value).splitlines()
    assert len(said) == 7 and said[-1] == "  and 1,995 more"


def test_what_is_not_there(tmp_path):
    root = fill(tmp_path / "set", "a.png")
    file = tmp_path / "labels.csv"
    with pytest.raises(FileNotFoundError, match="there is no label file .*labels.csv"):
        labelled_by_file(root, file)
    file.write_text("")
    with pytest.raises(ValueError, match="labels.csv names no image in "):
        labelled_by_file(root, file)
    with pytest.raises(FileNotFoundError, match="there is no folder .*nowhere"):
        labelled_by_file(tmp_path / "nowhere", file)
    file.write_text("a.png,cat")
    with pytest.raises(ValueError, match=r"has 1 class\(es\) that the training images lack: cat"):
        labelled_by_file(root, file, ["dog", "eel"])


def test_one_file_for_both_folders(tmp_path):
    fill(tmp_path, "train/a.png", "train/b.png", "val/c.png")
    file = tmp_path / "all.csv"
    data = custom(tmp_path / "train", val_path=str(tmp_path / "val"), labels=str(file))
    data.val_labels = data.labels
    below = ("train/a.png", "train/b.png", "val/c.png")
    for names in (
        ("a.png", "b.png", "c.png"),
        below,
        [f"{tmp_path}/{name}" for name in below],
        [f"../{name}" for name in below],
    ):
        rows = zip(names, ("dog", "cat", "dog"), strict=True)
        file.write_text("".join(f"{name},{label}\n" for name, label in rows))
        train, val = read_images(data)
        assert found(train) == {"a.png": "dog", "b.png": "cat"} and found(val) == {"c.png": "dog"}
        assert val.labels.tolist() == [1]
    # A name that is in both folders does not say which is meant.
    fill(tmp_path, "val/a.png")
    file.write_text("a.png,dog\nb.png,cat\nc.png,dog\n")
    with pytest.raises(ValueError, match="line 1: a.png is in .*train and in .*val; name it from"):
        read_images(data)


def test_the_signs_of_gtsrb(tmp_path):
    """Numbered class folders to train on; a flat folder and a CSV beside it to test on."""
    fill(tmp_path, *(f"Train/{number}/0.png" for number in (0, 2, 10)), "Test/0.png", "Test/1.png")
    (tmp_path / "Test.csv").write_text(
        "Width,Height,Roi.X1,ClassId,Path\n9,9,1,10,Test/0.png\n9,9,1,2,Test/1.png\n"
    )
    data = custom(tmp_path / "Train", val_path=str(tmp_path / "Test"))
    with pytest.raises(FileNotFoundError, match=f"set data.val_labels={tmp_path}/Test.csv$"):
        read_images(data)
    data.val_labels = str(tmp_path / "Test.csv")
    train, val = read_images(data)
    assert train.classes == val.classes == ["0", "10", "2"]
    assert found(val) == {"0.png": "10", "1.png": "2"}
    # The first edition of the set: five digits to a folder, semicolons.
    for number in (0, 2, 10):
        (tmp_path / f"Train/{number}").rename(tmp_path / f"Train/{number:05}")
    (tmp_path / "Test.csv").write_text("Filename;Width;ClassId\n0.png;9;10\n1.png;9;2\n")
    assert found(read_images(data)[1]) == {"0.png": "00010", "1.png": "00002"}


def tiny_imagenet(root):
    fill(root, "val/images/val_0.JPEG", "val/images/val_1.JPEG", "test/images/test_0.JPEG")
    for name in ("n01", "n02"):
        fill(root, f"train/{name}/images/{name}_0.JPEG", f"train/{name}/images/{name}_1.JPEG")
        (root / f"train/{name}/{name}_boxes.txt").write_text("")
    (root / "val/val_annotations.txt").write_text(
        "val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t0\t0\t9\t9\n"
    )
    return root


def test_tiny_imagenet_is_read_by_itself(tmp_path):
    root = tiny_imagenet(tmp_path)
    train, val = read_images(custom(root / "train", val_path=str(root / "val")))
    assert train.classes == val.classes == ["n01", "n02"] and train.labels.tolist() == [0, 0, 1, 1]
    assert found(val) == {"val_0.JPEG": "n02", "val_1.JPEG": "n01"}
    with pytest.raises(ValueError) as caught:
        read_images(custom(root))
    assert str(caught.value).endswith(
        f": set data.train_path={root}/train data.val_path={root}/val"
    )


@pytest.mark.parametrize("name", ["labels.csv", "Labels.TSV"])
def test_a_flat_folder_with_its_labels_in_it(name, tmp_path):
    fill(tmp_path, "a.png", "b.png", "c.png")
    sign = "," if name.endswith("csv") else "\t"
    (tmp_path / name).write_text(f"a.png{sign}cat\nb.png{sign}dog\nc.png{sign}cat\n")
    data = custom(tmp_path)
    images = load_images(data, "train")
    assert found(images) == {"a.png": "cat", "b.png": "dog", "c.png": "cat"}
    assert len(images.notes) == 1 and "left out" not in images.notes[0]
    (tmp_path / "other.csv").write_text("")
    assert "left out: 1 .csv" in load_images(data, "train").notes[0]
    assert class_names(data) == ["cat", "dog"]
    unlabelled = load_images(custom(tmp_path, no_labels=True), "train")
    assert unlabelled.classes == [] and len(unlabelled) == 3


def test_a_folder_without_labels_says_how_to_name_them(tmp_path):
    root = fill(tmp_path / "set", "cat/a.png", "b.png")
    settings = "set data.labels=FILE (a CSV or TSV of file,label)"
    with pytest.raises(ValueError, match="1 images beside its class folders") as caught:
        read_images(custom(root))
    assert str(caught.value).endswith(
        f"; to read labels from a file {settings}; for images without labels set "
        "data.no_labels=true"
    )
    with pytest.raises(ValueError) as caught:
        load_images(custom(root), "train")
    assert str(caught.value).endswith(settings) and caught.value.fault.endswith("(cat)")
    (tmp_path / "set.tsv").write_text("")
    with pytest.raises(ValueError, match=f"set data.labels={tmp_path}/set.tsv$"):
        load_images(custom(root), "train")


def test_two_flat_folders_with_the_same_names(tmp_path):
    for part, labels in (("train", "xy"), ("val", "yx")):
        fill(tmp_path / part, "0.png", "1.png")
        rows = [f"{row}.png,{label}\n" for row, label in enumerate(labels)]
        (tmp_path / part / "labels.csv").write_text("".join(rows))
    train, val = read_images(custom(tmp_path / "train", val_path=str(tmp_path / "val")))
    assert train.labels.tolist() == [0, 1] and val.labels.tolist() == [1, 0]


def test_class_folders_come_before_a_file_that_nobody_named(tmp_path):
    root = fill(tmp_path, "cat/a.png", "dog/b.png")
    (root / "labels.csv").write_text("cat/a.png,x\ndog/b.png,y\n")
    assert load_images(custom(root), "train").classes == ["cat", "dog"]
    assert load_images(custom(root, labels=f"{root}/labels.csv"), "train").classes == ["x", "y"]


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"labels": "l.csv", "no_labels": True}, "data.labels=l.csv: data.no_labels=true takes"),
        ({"labels": "l.csv", "dataset": "cifar10"}, "is of imagenet100, imagenet, custom; cifar10"),
        ({"val_labels": "l.csv"}, "data.val_labels=l.csv: set data.val_path to the folder"),
        ({"test_share": 0.2, "val_path": "v"}, "data.test_share=0.2: data.val_path=v has"),
        ({"test_share": 0.2, "dataset": "digits"}, "data.test_share=0.2: digits have images to"),
        ({"test_share": 0.2, "no_labels": True}, "data.test_share=0.2: it is of each class"),
    ],
)
def test_keys_that_do_not_go_together(keys, message):
    (said,) = odd_splits({"dataset": "custom", "train_path": "t", **keys})
    assert message in said


def test_numbers_of_the_same_classes_whatever_the_file(tmp_path):
    """A digest is of names, labels and classes: label files that say the same are the same set."""
    root = fill(tmp_path / "set", "a.png", "b.png")
    digests = set()
    for text in ("a.png,cat\nb.png,dog\n", "file\tlabel\nb.png\tdog\na.png\tcat\n"):
        (tmp_path / "labels").write_text(text)
        digests.add(labelled_by_file(root, tmp_path / "labels").digest())
    assert len(digests) == 1
    assert np.array_equal(labelled_by_file(root, tmp_path / "labels").labels, [0, 1])
