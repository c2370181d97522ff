"""Where images come from, and what is said when they are not there."""

import pickle

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image

from simco_methods.data import DATASETS, folder_images, load_images


def write(path, size=(8, 8), color=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (color, color, color)).save(path)


@pytest.fixture
def folders(tmp_path):
    for split, count in (("train", 4), ("test", 2)):
        for number, name in enumerate(("cat", "dog")):
            for i in range(count):
                write(tmp_path / split / name / f"{i}.png", color=100 * number + i)
    return tmp_path


def data(dataset, **settings):
    return OmegaConf.create({"dataset": dataset, **settings})


def test_digits_are_split_once_and_for_all():
    train, val = (load_images(data("digits"), split) for split in ("train", "val"))
    assert (len(train), len(val)) == (1437, 360)
    assert train.images.dtype == np.uint8 and train.images.shape[1:] == (8, 8, 3)
    assert np.bincount(val.labels).min() >= 34 and train.load(0).mode == "RGB"
    flat = {image.tobytes() for image in train.images}
    assert len({image.tobytes() for image in val.images} & flat) <= 1


def test_class_folders_are_numbered_by_name(folders):
    train = load_images(data("custom", train_path=str(folders / "train")), "train")
    assert train.classes == ["cat", "dog"] and train.labels.tolist() == [0] * 4 + [1] * 4
    assert np.asarray(train.load(5))[0, 0, 0] == 101
    (folders / "test" / "cat").rename(folders / "test" / "dig")
    with pytest.raises(ValueError, match="class folders dig, which the training images lack"):
        folder_images(folders / "test", classes=train.classes)


def test_a_validation_folder_with_fewer_classes_keeps_their_numbers(folders):
    for file in (folders / "test" / "cat").iterdir():
        file.unlink()
    val = folder_images(folders / "test", classes=["cat", "dog"])
    assert val.labels.tolist() == [1, 1]


def test_unlabelled_folders_are_read_whole_and_in_order(folders):
    write(folders / "train" / "loose.jpg")
    write(folders / "train" / ".hidden" / "no.png")
    (folders / "train" / "notes.txt").write_text("no image")
    images = load_images(data("custom", train_path=str(folders / "train"), no_labels=True), "train")
    assert len(images) == 9 and set(images.labels) == {-1} and images.classes == []
    names = [path.removeprefix(f"{folders}/train/") for path in images.images]
    assert names == ["loose.jpg", *(f"{c}/{i}.png" for c in ("cat", "dog") for i in range(4))]


def test_cifar_from_class_folders_and_from_torchvision_s_files(folders, monkeypatch):
    settings = {"train_path": str(folders), "val_path": str(folders)}
    with pytest.raises(ValueError, match="cifar10 has 10 classes, .* has 2 class folders"):
        load_images(data("cifar10", **settings), "train")
    for number in range(8):
        for split in ("train", "test"):
            write(folders / split / f"other{number}" / "0.png")
    assert len(load_images(data("cifar10", **settings), "train")) == 16
    assert len(load_images(data("cifar10", **settings), "val")) == 12

    batches = folders / "files" / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    rows = {"data": np.zeros((3, 3072), np.uint8), "labels": [0, 1, 9]}
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (batches / name).write_bytes(pickle.dumps(rows))
    (batches / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    files = {"train_path": str(folders / "files"), "val_path": str(folders / "files")}
    assert load_images(data("cifar10", **files), "train").images.shape == (15, 32, 32, 3)
    assert load_images(data("cifar10", **files), "val").labels.tolist() == [0, 1, 9]


@pytest.mark.parametrize("dataset", [d for d in DATASETS if d not in ("digits", "custom")])
def test_missing_data_names_the_path_and_the_way_out(dataset, tmp_path):
    missing = tmp_path / "nowhere"
    with pytest.raises(FileNotFoundError, match=str(missing)) as caught:
        load_images(data(dataset, train_path=str(missing)), "train")
    if "imagenet" not in dataset:
        assert "data.download=true" in str(caught.value)
    assert not missing.exists()


def test_nothing_is_downloaded_unasked(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a download was tried")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    for dataset in ("cifar10", "cifar100", "svhn", "stl10"):
        with pytest.raises(FileNotFoundError):
            load_images(data(dataset, train_path=str(tmp_path)), "train")


def test_a_broken_image_is_named(folders):
    for name, content in (("cut.jpg", b"\xff\xd8\xff\xe0 cut"), ("empty.png", b"")):
        (folders / "train" / "cat" / name).write_bytes(content)
    images = folder_images(folders / "train")
    for row, path in enumerate(images.images):
        if path.endswith((".jpg", "empty.png")):
            with pytest.raises(OSError, match=path):
                images.load(row)


def test_loose_images_beside_class_folders_are_refused(folders):
    write(folders / "train" / "loose.png")
    with pytest.raises(ValueError, match="1 images beside its class folders .cat, dog."):
        folder_images(folders / "train")


def test_deep_images_are_scaled_or_refused(folders):
    deep = np.array([[0, 65535], [256, 32768]], dtype=np.uint16)
    Image.fromarray(deep).save(folders / "train" / "cat" / "0.png")
    pixels = np.asarray(folder_images(folders / "train").load(0))
    assert pixels[..., 0].tolist() == [[0, 255], [1, 128]]
    Image.fromarray(deep.astype(np.float32)).save(folders / "train" / "cat" / "0.tiff")
    with pytest.raises(OSError, match="0.tiff: its pixels are signed or have 32 bits"):
        folder_images(folders / "train").load(1)


def test_subsets(folders):
    settings = {"train_path": str(folders / "train"), "val_path": str(folders / "test")}
    few = load_images(data("custom", train_images_per_class=3, **settings), "train")
    assert few.labels.tolist() == [0, 0, 0, 1, 1, 1] and few.images[2].endswith("cat/2.png")
    with pytest.raises(ValueError, match="class cat has 2 images, 3 were asked for"):
        load_images(data("custom", val_images_per_class=3, **settings), "val")
    half = load_images(data("custom", fraction=0.5, **settings), "train")
    assert sorted(half.labels.tolist()) == [0, 0, 1, 1]
    assert len(load_images(data("custom", fraction=0.5, **settings), "val")) == 4
