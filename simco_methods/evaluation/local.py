"""The labelled data sets that are found in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from simco_methods.data.decode import printable
from simco_methods.data.folders import EXTENSIONS, class_folders, no_folder
from simco_methods.data.labels import IMAGES, label_file_near, own_label_file
from simco_methods.data.splits import is_split, split_parts
from simco_methods.evaluation.sides import Sides, read_sides

# By what torchvision unpacks into the folder that it downloads to.
_TORCHVISION = {
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
    "svhn": "train_32x32.mat",
    "stl10": "stl10_binary",
}


@dataclass(frozen=True)
class LocalDataset:
    """A data set on this machine.

    Attributes:
        name: to call it by.
        data: its keys ``data.*``.
        split: whether it has images to test on.
    """

    name: str
    data: dict[str, Any]
    split: bool = True

    def sides(self, test_share: float, fraction: float | None, on_error: str = "raise") -> Sides:
        """Its images; see :func:`~simco_methods.evaluation.sides.read_sides`.

        Args:
            test_share: of each class, to test on, where there are no images for that.
            fraction: of the training images.
            on_error: what an image that cannot be read does, "raise" or "skip".
        """
        data = OmegaConf.create({**self.data, "on_error": on_error})
        return read_sides(data, None if self.split else test_share, fraction)


DIGITS = LocalDataset("digits", {"dataset": "digits"})  # embedded


def local_datasets(folder: Path | None) -> tuple[dict[str, LocalDataset], list[str]]:
    """The data sets by name, the embedded digits first.

    There are those of torchvision's files, in ``folder`` or a subfolder, and of images with labels:
    below ``train/`` and ``test/`` (else ``val/``), or without a split. Images have labels if they
    are right in two or more subfolders, or in ``images/`` there, or if a label file lies with them
    (see :func:`~simco_methods.data.labels.own_label_file`) or, of ``test/``, beside it. If nothing
    else is there, ``folder`` itself is looked at so.

    Args:
        folder: where to look, one level deep; None for nowhere.

    Returns:
        The data sets, and the names of the subfolders that are none.

    Raises:
        FileNotFoundError: no such folder.
    """
    found = [DIGITS]
    others: list[str] = []
    if folder is not None:
        if not folder.is_dir():
            raise no_folder(folder)
        called = folder.resolve().name  # it may be "."
        own = [*_of_torchvision(folder), *_of_class_folders(folder, called, split=True)]
        split = own and own[-1].data["dataset"] == "custom"
        parts = [part.name for part in split_parts(folder).values()] if split else []
        below = []
        for name in class_folders(folder):
            if name in parts or name in _TORCHVISION.values():
                continue
            try:
                inside = [*_of_torchvision(folder / name), *_of_class_folders(folder / name, name)]
            except PermissionError:  # such as lost+found
                inside = []
            below += inside
            others += [] if inside else [name]
        found += own + below
        if not own and not below:
            of_itself = list(_of_class_folders(folder, called))
            found += of_itself
            others = [] if of_itself else others
    named: dict[str, LocalDataset] = {}
    for dataset in found:
        own = printable(dataset.name)
        name, number = own, 1
        while name in named:
            number += 1
            name = f"{own}-{number}"
        named[name] = LocalDataset(name, dataset.data, dataset.split)
    return named, others


def _of_torchvision(folder: Path) -> Iterator[LocalDataset]:
    for name, file in _TORCHVISION.items():
        if (folder / file).exists():
            paths = {"train_path": str(folder), "val_path": str(folder)}
            yield LocalDataset(name, {"dataset": name, **paths})


def _of_class_folders(folder: Path, name: str, split: bool = False) -> Iterator[LocalDataset]:
    """At most one; with ``split`` only of a part to train on and another to test on."""
    parts = split_parts(folder)
    train = _labelled(parts["train"], "train", 2) if "train" in parts else None
    if train is not None:
        tests = (_labelled(parts[p], "val", 1) for p in ("test", "val") if p in parts)
        test = next(filter(None, tests), None)
        if test is not None:
            yield LocalDataset(name, {"dataset": "custom", **train, **test})
        elif not split:
            yield LocalDataset(name, {"dataset": "custom", **train}, split=False)
    elif not split and not is_split(parts) and (whole := _labelled(folder, "train", 2)):
        yield LocalDataset(name, {"dataset": "custom", **whole}, split=False)


def _labelled(folder: Path, split: str, least: int) -> dict[str, str] | None:
    """The keys of a folder's images, None if they have no labels; ``least`` class folders."""
    keys = {f"{split}_path": str(folder)}
    if own_label_file(folder) or _has_classes(folder, least):
        return keys
    beside = label_file_near(folder) if split == "val" and not class_folders(folder) else None
    return {**keys, "val_labels": str(beside)} if beside else None


def _has_classes(folder: Path, least: int) -> bool:
    count = 0
    for name in class_folders(folder):
        places = (folder / name, folder / name / IMAGES)  # the second is Tiny-ImageNet's
        count += name != IMAGES and any(_has_images(place) for place in places if place.is_dir())
        if count == least:
            return True
    return False


def _has_images(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(
            entry.name.lower().endswith(EXTENSIONS) and not entry.name.startswith(".")
            for entry in entries
        )
