"""The two sides of an evaluation: labelled images to learn from, and others to test on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from omegaconf import DictConfig, OmegaConf

from simco_methods.data import load_images
from simco_methods.data.datasets import held_share, train_and_val
from simco_methods.data.decode import printable, shell_word
from simco_methods.data.folders import LooseImages, NoClassFolders, SplitFolders, listed
from simco_methods.data.images import UNLABELLED, ImageSet
from simco_methods.data.readable import leave_out_unreadable, left_out_line
from simco_methods.data.splits import stratified

_NEEDED = ": an evaluation needs a folder for each class"


@dataclass
class Sides:
    """Labelled images, classes numbered alike on both sides.

    Attributes:
        train: to learn from, or a kNN's bank.
        test: to test on.
        name: of the data set.
        notes: what is to be said of them, a line each.
    """

    train: ImageSet
    test: ImageSet
    name: str
    notes: Sequence[str] = ()

    @property
    def classes(self) -> list[str]:
        """Names of the classes, which are those of the data set, whatever labels turn up."""
        return self.train.classes


def read_sides(data: DictConfig, test_share: float | None, fraction: float | None) -> Sides:
    """The labelled images that ``data`` names.

    Args:
        data: as of :func:`~simco_methods.data.load_images`.
        test_share: of each class, to test on, where there is no ``data.val_path``; the images are
            the same for everybody. None for ``data.test_share``, if that is set.
        fraction: stratified share of the training images, None for all.

    Raises:
        FileNotFoundError: images that are not there, with the path.
        ValueError: no labels, one class, nothing to test on, classes to test that the training
            images lack, or a share that is too small for the classes.
    """
    share = held_share(data) if test_share is None else test_share
    apart = data.dataset == "digits" or data.get("val_path") is not None
    if apart and test_share is not None:
        raise ValueError(
            f"test_share={test_share}: {data.dataset} has images to test on"
            + (f", data.val_path={data.val_path}" if data.get("val_path") else "")
        )
    try:
        train, test = train_and_val(OmegaConf.merge(data, {"test_share": share}))
    except (NoClassFolders, LooseImages) as error:
        raise error.advised(_NEEDED + error.advice) from error
    if test is None:
        train_path = shell_word(str(data.get("train_path")))
        raise ValueError(
            f"there is nothing to test on: set data.val_path to a folder like "
            f"data.train_path={train_path}, or test_share=0.2 to hold out a fifth of each class of "
            "that"
        )
    notes: list[str] = []
    train, test = (
        _labelled(images, data, split, notes) for split, images in (("train", train), ("val", test))
    )
    if share is not None:
        notes.append(f"no data.val_path: {share:g} of each class is held out to test on")
    if len(train.classes) < 2:
        raise ValueError(
            f"all labelled images are of one class ({printable(train.classes[0])}); to tell "
            "classes apart takes two or more"
        )
    for side, images in (("training", train), ("test", test)):
        notes += lacking(f"the {side} images", images)
    if fraction is not None and fraction < 1:
        total = len(train)
        train = stratified(train, fraction)
        notes.append(f"fraction={fraction:g}: {len(train):,} of {total:,} training images")
    return Sides(train, test, data.dataset, notes)


def lacking(what: str, images: ImageSet) -> list[str]:
    """A note of the classes that no image is of, if there are any; ``what`` has the images."""
    counts = np.bincount(images.labels, minlength=len(images.classes))
    names = [name for name, n in zip(images.classes, counts, strict=True) if not n]
    return [f"{what} lack {len(names)} class(es): {listed(names)}"] if names else []


def labelled_folder(
    folder: str, classes: Sequence[str], on_error: str, notes: list[str]
) -> ImageSet:
    """The labelled images of a folder with a folder for each class.

    Args:
        folder: its path.
        classes: names to number the classes by.
        on_error: what an image that cannot be read does, "raise" or "skip".
        notes: gets a line of what is left out.

    Raises:
        FileNotFoundError, ValueError: see :func:`read_sides`.
    """
    data = OmegaConf.create({"dataset": "custom", "train_path": folder, "on_error": on_error})
    with folder_advice():
        images = load_images(data, "train", classes)
    return _labelled(images, data, "train", notes)


@contextmanager
def folder_advice() -> Iterator[None]:
    """What is said of a folder that is named by itself, so not by the keys ``data.*``."""
    try:
        yield
    except (NoClassFolders, LooseImages) as error:
        raise error.advised(_NEEDED) from error
    except SplitFolders as error:
        raise error.advised("; name one of them") from error


def _labelled(images: ImageSet, data: DictConfig, split: str, notes: list[str]) -> ImageSet:
    """Those that have a label and, if the others are to be left out, can be read."""
    notes += [note for note in images.notes if note not in notes]
    if data.get("on_error") == "skip":
        total = len(images)
        images, left_out = leave_out_unreadable(images)
        if left_out:
            notes.append(left_out_line(left_out, total))
    rows = np.flatnonzero(images.labels != UNLABELLED)
    if not len(rows):
        raise ValueError(f"no image of data.{split}_path={data.get(f'{split}_path')} has a label")
    return images if len(rows) == len(images) else images.select(rows)
