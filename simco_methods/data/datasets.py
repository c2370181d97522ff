"""The data sets by name: where their images come from, how many classes, how to normalise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torchvision import datasets as tv

from simco_methods.data.decode import printable, shell_word
from simco_methods.data.folders import (
    LooseImages,
    NoClassFolders,
    SplitFolders,
    class_folders,
    folder_images,
    image_files,
)
from simco_methods.data.images import ImageSet
from simco_methods.data.labels import label_file_near, labelled_by_file, own_label_file
from simco_methods.data.splits import (
    classes_below,
    hold_out,
    is_split,
    shared_images,
    split_parts,
)
from simco_methods.files import lock, user_path
from simco_methods.progress import Progress

Loader = Callable[[DictConfig, str, Sequence[str] | None], ImageSet]


@dataclass(frozen=True)
class DatasetInfo:
    """What the runner knows of a data set.

    Attributes:
        load: (cfg.data, "train" or "val", class names of the training images) to images.
        num_classes: None if the images tell.
        mean, std: of the training images' channels, in [0, 1].
        square: images are of one size and are validated whole; else resized and centre-cropped.
        crop_min_scale, flip: of the crop-and-flip that a linear classifier is trained on: the
            smallest share of an image that a crop takes, and the probability of a mirrored one.
    """

    load: Loader
    num_classes: int | None
    mean: Sequence[float] = IMAGENET_DEFAULT_MEAN
    std: Sequence[float] = IMAGENET_DEFAULT_STD
    square: bool = False
    crop_min_scale: float = 0.08
    flip: float = 0.5


def _path(data: DictConfig, split: str) -> Path:
    key = f"data.{split}_path"
    value = data.get(f"{split}_path")
    if value is None:
        raise ValueError(f"{key} is not set; {data.dataset} needs the folder of its images")
    return user_path(value)


def _digits(data: DictConfig, split: str, classes: Sequence[str] | None) -> ImageSet:
    # 1,797 handwritten digits of 8x8 pixels, shipped with scikit-learn; 360 are held out.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    rows = train_test_split(
        np.arange(len(digits.target)), test_size=360, stratify=digits.target, random_state=0
    )[split == "val"]
    gray = np.round(digits.images[rows] * (255 / 16)).astype(np.uint8)
    images = np.repeat(gray[..., None], 3, axis=-1)
    return ImageSet(images, digits.target[rows].astype(np.int64), [str(i) for i in range(10)])


def _torchvision(
    name: str, read: Callable[[Path, str, bool], tuple[np.ndarray, np.ndarray]]
) -> Loader:
    """Class folders ``train/`` and ``test/`` if they are there, else torchvision's own files."""

    def load(data: DictConfig, split: str, classes: Sequence[str] | None) -> ImageSet:
        root = _path(data, split)
        folder = root / ("train" if split == "train" else "test")
        if folder.is_dir() and class_folders(folder):
            return folder_images(folder, classes=classes)
        try:
            images, labels = read(root, split, False)
        except (RuntimeError, FileNotFoundError) as error:
            if not data.get("download", False):
                raise FileNotFoundError(
                    f"{name} was not found in {root.resolve()}. Add data.download=true to have it "
                    "downloaded there, or set data.train_path and data.val_path to the folder "
                    "that holds it (torchvision's files, or class folders under train/ and test/)."
                ) from error
            with _alone(root):
                try:
                    images, labels = read(root, split, True)
                except RuntimeError as failure:
                    raise OSError(
                        f"{name} could not be downloaded to {root.resolve()}: {failure}"
                    ) from failure
        count = DATASETS[name].num_classes
        return ImageSet(images, labels.astype(np.int64), [str(i) for i in range(count)])

    return load


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One process of all that download to ``root``; the next finds what it has brought."""
    path = root / ".download.lock"
    held = lock(path)
    if held is None:
        print(f"waiting for another process, which downloads to {root}", flush=True)
        held = lock(path, wait=True)
    try:
        yield
    finally:
        os.close(held)


def _read_cifar(kind: type) -> Callable[[Path, str, bool], tuple[np.ndarray, np.ndarray]]:
    def read(root: Path, split: str, download: bool) -> tuple[np.ndarray, np.ndarray]:
        found = kind(root, train=split == "train", download=download)
        return found.data, np.asarray(found.targets)

    return read


def _read_svhn(root: Path, split: str, download: bool) -> tuple[np.ndarray, np.ndarray]:
    found = tv.SVHN(root, split="train" if split == "train" else "test", download=download)
    return found.data.transpose(0, 2, 3, 1), found.labels


def _read_stl10(root: Path, split: str, download: bool) -> tuple[np.ndarray, np.ndarray]:
    # 100,000 unlabelled images (label -1) with the 5,000 labelled ones, as in solo-learn.
    part = "train+unlabeled" if split == "train" else "test"
    found = tv.STL10(root, split=part, download=download)
    return found.data.transpose(0, 2, 3, 1), found.labels


_LABELS = {"train": "labels", "val": "val_labels"}  # keys of the label files, by split


def _folder(data: DictConfig, split: str, classes: Sequence[str] | None) -> ImageSet:
    root = _path(data, split)
    if root.is_dir():
        _refuse_parts(root, data, split)
    if data.get("no_labels", False):
        return folder_images(root, labelled=False)
    file = _label_file(data, split)
    if file is not None:
        shared = None is not data.get("labels") == data.get("val_labels")
        other = data.get("val_path" if split == "train" else "train_path") if shared else None
        return labelled_by_file(root, file, classes, other and user_path(other))
    try:
        images = folder_images(root, classes=classes)
    except (NoClassFolders, LooseImages) as error:
        near = label_file_near(root)
        wanted = _quoted(_LABELS[split], near or "FILE")
        raise error.advised(
            f"; to read labels from a file set {wanted}"
            + " (a CSV or TSV of file,label)" * (not near)
        ) from error
    if classes is None:
        images.notes.extend(classes_below(root, images.classes))
    return images


def _label_file(data: DictConfig, split: str) -> Path | None:
    """The file that tells the classes of a split's images, if their folders do not."""
    given = data.get(_LABELS[split])
    return own_label_file(_path(data, split)) if given is None else user_path(given)


def _refuse_parts(root: Path, data: DictConfig, split: str) -> None:
    """Raises ``SplitFolders`` for a root with images to train on and others to validate on."""
    parts = split_parts(root)
    if not is_split(parts):
        return
    val = parts.get("val", parts.get("test"))
    wanted = [_settings_of(val if split == "val" else parts["train"], split)]
    if split == "train" and not data.get("no_labels", False) and data.get("val_path") is None:
        wanted.append(_settings_of(val, "val"))
    raise SplitFolders(
        f"{printable(root)} holds the parts of a split "
        f"({', '.join(part.name for part in parts.values())})",
        f": set {' '.join(wanted)}",
    )


def _settings_of(part: Path, split: str) -> str:
    """The settings that name a part, and its labels if they lie beside it."""
    settings = _quoted(f"{split}_path", part)
    near = None if class_folders(part) or own_label_file(part) else label_file_near(part)
    return settings if near is None else f"{settings} {_quoted(_LABELS[split], near)}"


def _quoted(key: str, value: str | Path) -> str:
    """A setting as a shell takes it."""
    return f"data.{key}={shell_word(value)}"


DATASETS: dict[str, DatasetInfo] = {
    "digits": DatasetInfo(
        _digits,
        10,
        mean=(0.305,) * 3,
        std=(0.376,) * 3,
        square=True,
        crop_min_scale=0.5,
        flip=0.0,  # a mirrored digit is another one
    ),
    "cifar10": DatasetInfo(
        _torchvision("cifar10", _read_cifar(tv.CIFAR10)),
        10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        square=True,
    ),
    "cifar100": DatasetInfo(
        _torchvision("cifar100", _read_cifar(tv.CIFAR100)),
        100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        square=True,
    ),
    "svhn": DatasetInfo(
        _torchvision("svhn", _read_svhn),
        10,
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        square=True,
    ),
    "stl10": DatasetInfo(
        _torchvision("stl10", _read_stl10),
        10,
        mean=(0.4914, 0.4823, 0.4466),
        std=(0.247, 0.243, 0.261),
        square=True,
    ),
    "imagenet100": DatasetInfo(_folder, 100),
    "imagenet": DatasetInfo(_folder, 1000),
    "custom": DatasetInfo(_folder, None),
}


FOLDERS = tuple(name for name, info in DATASETS.items() if info.load is _folder)


def odd_splits(data: Mapping[str, Any]) -> Iterator[str]:
    """What does not go together of the keys that say which images are labelled and held out."""
    dataset, held = data.get("dataset"), data.get("test_share")
    for split, key in _LABELS.items():
        if data.get(key) is None:
            continue
        said = f"data.{key}={data[key]}"
        if dataset not in FOLDERS:
            yield f"{said}: is of {', '.join(FOLDERS)}; {dataset} has labels of its own"
        if data.get("no_labels"):
            yield f"{said}: data.no_labels=true takes images without labels; leave one of them out"
        if split == "val" and data.get("val_path") is None:
            yield f"{said}: set data.val_path to the folder of these images"
    if held is None:
        return
    if dataset == "digits":
        yield f"data.test_share={held}: digits have images to validate on"
    if data.get("val_path") is not None:
        yield (
            f"data.test_share={held}: data.val_path={data['val_path']} has the images to validate "
            "on; set data.val_path=null to hold out a share of the training images"
        )
    if data.get("no_labels"):
        yield f"data.test_share={held}: it is of each class, and data.no_labels=true has none"


def load_images(data: DictConfig, split: str, classes: Sequence[str] | None = None) -> ImageSet:
    """The images of a split.

    Args:
        data: ``dataset``, ``train_path``, ``val_path``, and if set ``labels``, ``val_labels``,
            ``test_share``, ``no_labels``, ``fraction``, ``download``, ``train_images_per_class``,
            ``val_images_per_class``.
        split: "train" or "val"; with ``test_share`` what is left of the training images, or held
            out of them.
        classes: class names of the training images, to number a validation folder's classes by.

    Returns:
        The images; a ``fraction`` is taken of the training images only.

    Raises:
        FileNotFoundError: data that is not there, with the path and what would bring it.
        ValueError: an unknown data set, or folders, labels or shares that do not fit it.
    """
    if held_share(data) is None:
        return _of_split(_all_images(data, split, classes), data, split)
    return _held_out(data)[split == "val"]


def _held_out(data: DictConfig) -> tuple[ImageSet, ImageSet]:
    train, val = hold_out(_all_images(data, "train"), held_share(data))
    if data.get("val_images_per_class"):
        val = val.first_per_class(data.val_images_per_class)
    return _of_split(train, data, "train"), val


def _all_images(data: DictConfig, split: str, classes: Sequence[str] | None = None) -> ImageSet:
    if data.dataset not in DATASETS:
        raise ValueError(f"data.dataset={data.dataset!r} is none of {', '.join(DATASETS)}")
    info = DATASETS[data.dataset]
    with Progress(f"listing the {split} images"):
        images = info.load(data, split, classes)
    if images.classes and info.num_classes not in (None, len(images.classes)):
        file = data.get(_LABELS[split])
        raise ValueError(
            f"{data.dataset} has {info.num_classes} classes, {file or _path(data, split)} has "
            f"{len(images.classes)} {'of them' if file else 'class folders'}"
        )
    per_class = data.get(f"{split}_images_per_class")
    return images.first_per_class(per_class) if per_class else images


def _of_split(images: ImageSet, data: DictConfig, split: str) -> ImageSet:
    share = OmegaConf.select(data, "fraction", default=-1)
    return images.fraction(share) if split == "train" and share and share > 0 else images


def held_share(data: DictConfig) -> float | None:
    """The share of the training images that is held out to validate on, None for none."""
    return data.get("test_share") if data.get("val_path") is None else None


def has_validation(data: DictConfig) -> bool:
    """Whether there are labelled images to validate on: always for digits, else with a path or a
    share of the training images."""
    if data.get("no_labels", False):
        return False
    given = data.get("val_path") is not None or held_share(data) is not None
    return data.dataset == "digits" or given


def read_images(data: DictConfig) -> tuple[ImageSet, ImageSet | None]:
    """The training images that ``cfg.data`` names, and those to validate on, if there are any.

    Raises:
        FileNotFoundError, ValueError: see :func:`load_images`.
    """
    train, val = train_and_val(data, "; for images without labels set data.no_labels=true")
    if val is not None:
        val.notes.extend(shared_images(train, val))
    return train, val


def train_and_val(data: DictConfig, advice: str = "") -> tuple[ImageSet, ImageSet | None]:
    """Both splits of :func:`load_images`; None where there is nothing to validate on.

    Args:
        data: see :func:`load_images`.
        advice: ends what is said of training images that are in no class folders.
    """
    try:
        if held_share(data) is not None:
            return _held_out(data)
        train = load_images(data, "train")
    except (NoClassFolders, LooseImages) as error:
        raise error.advised(error.advice + advice) from error
    return train, load_images(data, "val", train.classes) if has_validation(data) else None


def class_names(data: DictConfig) -> list[str]:
    """Names of the classes of a folder's training images; none where they have no labels.

    Raises:
        FileNotFoundError, ValueError: see :func:`load_images`.
    """
    if data.get("no_labels", False):
        return []
    root = _path(data, "train")
    if not root.is_dir():
        raise FileNotFoundError(f"data.train_path={data.train_path}: there is no such folder")
    if _label_file(data, "train") is not None:
        return _folder(data, "train", None).classes
    return [name for name in class_folders(root) if next(image_files(root / name), None)]
