"""Splits of a data set: parts that lie in folders of their own, and shares that are held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from simco_methods.data.decode import printable
from simco_methods.data.folders import Places, class_folders, image_files, listed
from simco_methods.data.images import UNLABELLED, ImageSet

# How folders of a split are called, in any case; of several the first in this order.
_PARTS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


def split_parts(folder: Path) -> dict[str, Path]:
    """Subfolders with images that are parts of a split by their names.

    Args:
        folder: that is there.

    Returns:
        Those of "train", "val" and "test" that there are, in this order.
    """
    there: dict[str, str] = {}
    for name in class_folders(folder):
        there.setdefault(name.lower(), name)
    parts = {}
    for part, names in _PARTS.items():
        for name in names:
            path = folder / there[name] if name in there else None
            if path is not None and next(image_files(path), None):
                parts[part] = path
                break
    return parts


def is_split(parts: Mapping[str, Path]) -> bool:
    """Whether there are a part to train on and another to validate or test on."""
    return "train" in parts and len(parts) > 1


def stratified(images: ImageSet, share: float) -> ImageSet:
    """A stratified share of labelled images, the same for everybody.

    Raises:
        ValueError: too few images for the classes, with the numbers.
    """
    classes, counts = np.unique(images.labels, return_counts=True)
    kept = int(share * len(images))
    if kept < len(classes) or len(images) - kept < len(classes):
        raise ValueError(
            f"a share of {share:g} of {len(images):,} images in {len(classes)} classes leaves "
            f"{min(kept, len(images) - kept):,} on one side, fewer than classes; it needs "
            f"{len(classes)} on each"
        )
    if counts.min() < 2:
        name = images.classes[classes[counts.argmin()]]
        raise ValueError(
            f"class {printable(name)} has one image: it cannot be on both sides of a share"
        )
    return images.fraction(share)


def hold_out(images: ImageSet, share: float) -> tuple[ImageSet, ImageSet]:
    """The images to train on, and a share of each class to test on: the same for everybody.

    Images without a label stay among those to train on.

    Args:
        images: of which some are labelled.
        share: of each class that is held out, between 0 and 1.

    Raises:
        ValueError: no label, or too few images for the classes, with the numbers.
    """
    labelled = np.flatnonzero(images.labels != UNLABELLED)
    if not len(labelled):
        raise ValueError(f"test_share={share:g}: a share of each class, and no image has a label")
    numbered = ImageSet(labelled, images.labels[labelled], images.classes)
    try:
        kept = stratified(numbered, 1 - share).images
    except ValueError as error:
        raise ValueError(f"test_share={share:g}: {error}") from error
    held = np.setdiff1d(labelled, kept)
    return images.select(np.setdiff1d(np.arange(len(images)), held)), images.select(held)


def shared_images(train: ImageSet, val: ImageSet) -> list[str]:
    """A note of images to validate on that are trained on, if there are any."""
    if isinstance(train.images, np.ndarray) or isinstance(val.images, np.ndarray):
        return []
    place = Places()
    trained = set(map(place, train.images))
    count = sum(place(path) in trained for path in val.images)
    if not count:
        return []
    return [
        f"{count:,} of {len(val):,} images to validate on are training images, too: accuracies are "
        "not of new images"
    ]


def classes_below(root: Path, classes: Sequence[str]) -> list[str]:
    """A note of class folders that all have the same subfolders, which may be the classes."""
    below = [tuple(class_folders(root / name)) for name in classes]
    if len(below) < 2 or len(set(below)) > 1 or len(below[0]) < 2:
        return []
    return [
        f"the classes are the folders right in {printable(root)} ({listed(classes)}), and each "
        f"of them has the same subfolders ({listed(below[0])}): if those are the classes, name "
        "one of the former"
    ]
