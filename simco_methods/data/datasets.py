"""The data sets by name: where their images come from, how many classes, how to normalise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from omegaconf import DictConfig, OmegaConf
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torchvision import datasets as tv

from simco_methods.data.folders import class_folders, folder_images
from simco_methods.data.images import ImageSet
from simco_methods.files import lock

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
    return Path(value).expanduser()


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


def _folder(data: DictConfig, split: str, classes: Sequence[str] | None) -> ImageSet:
    return folder_images(
        _path(data, split), labelled=not data.get("no_labels", False), classes=classes
    )


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


def load_images(data: DictConfig, split: str, classes: Sequence[str] | None = None) -> ImageSet:
    """The images of a split.

    Args:
        data: ``dataset``, ``train_path``, ``val_path``, and if set ``no_labels``, ``fraction``,
            ``download``, ``train_images_per_class``, ``val_images_per_class``.
        split: "train" or "val".
        classes: class names of the training images, to number a validation folder's classes by.

    Returns:
        The images; a ``fraction`` is taken of the training images only.

    Raises:
        FileNotFoundError: data that is not there, with the path and what would bring it.
        ValueError: an unknown data set, or folders that do not fit it.
    """
    if data.dataset not in DATASETS:
        raise ValueError(f"data.dataset={data.dataset!r} is none of {', '.join(DATASETS)}")
    info = DATASETS[data.dataset]
    images = info.load(data, split, classes)
    if images.classes and info.num_classes not in (None, len(images.classes)):
        raise ValueError(
            f"{data.dataset} has {info.num_classes} classes, {_path(data, split)} has "
            f"{len(images.classes)} class folders"
        )
    per_class = data.get(f"{split}_images_per_class")
    if per_class:
        images = images.first_per_class(per_class)
    share = OmegaConf.select(data, "fraction", default=-1)
    if split == "train" and share and share > 0:
        images = images.fraction(share)
    return images


def has_validation(data: DictConfig) -> bool:
    """Whether there are labelled images to validate on: always for digits, else with a path."""
    if data.get("no_labels", False):
        return False
    return data.dataset == "digits" or data.get("val_path") is not None


def read_images(data: DictConfig) -> tuple[ImageSet, ImageSet | None]:
    """The training images that ``cfg.data`` names, and those to validate on, if there are any."""
    train = load_images(data, "train")
    return train, load_images(data, "val", train.classes) if has_validation(data) else None
