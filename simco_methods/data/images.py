"""Sets of images with labels: arrays in memory, or files on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

UNLABELLED = -1
EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")


@dataclass
class ImageSet:
    """Images with one class number each, -1 where there is none.

    Attributes:
        images: a uint8 array (N, H, W, 3), or the N files' paths.
        labels: (N,) int64.
        classes: the classes' names, empty if nothing is labelled.
    """

    images: np.ndarray | Sequence[str]
    labels: np.ndarray
    classes: list[str]

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, index: int) -> Image.Image:
        """The RGB image.

        Raises:
            OSError: a file that cannot be read as an image, by its path.
        """
        image = self.images[index]
        if not isinstance(image, str):
            return Image.fromarray(image)
        try:
            with Image.open(image) as opened:
                return _as_rgb(opened)
        except Exception as error:  # Pillow's decoders raise many kinds
            raise OSError(f"cannot read the image {image}: {error}") from error

    def size(self, index: int) -> tuple[int, int]:
        """Height and width, of a file from its header.

        Raises:
            OSError: a file that is no image, by its path.
        """
        image = self.images[index]
        if not isinstance(image, str):
            return image.shape[:2]
        try:
            with Image.open(image) as opened:
                return opened.size[::-1]
        except Exception as error:  # Pillow's decoders raise many kinds
            raise OSError(f"cannot read the image {image}: {error}") from error

    def select(self, rows: np.ndarray) -> ImageSet:
        """The images at ``rows``, in that order."""
        images = self.images
        chosen = images[rows] if isinstance(images, np.ndarray) else [images[i] for i in rows]
        return ImageSet(chosen, self.labels[rows], self.classes)

    def first_per_class(self, count: int) -> ImageSet:
        """The first ``count`` images of each class, in order.

        Raises:
            ValueError: a class that has fewer.
        """
        if not self.classes:
            raise ValueError("images without labels cannot be counted by class")
        rows = []
        for number, name in enumerate(self.classes):
            found = np.flatnonzero(self.labels == number)
            if len(found) < count:
                raise ValueError(f"class {name} has {len(found)} images, {count} were asked for")
            rows.append(found[:count])
        return self.select(np.sort(np.concatenate(rows)))

    def fraction(self, share: float) -> ImageSet:
        """A stratified share of the images, the same as solo-learn's ``data.fraction``."""
        from sklearn.model_selection import train_test_split

        stratify = self.labels if self.classes else None
        rows, _ = train_test_split(
            np.arange(len(self)), train_size=share, stratify=stratify, random_state=42
        )
        return self.select(rows)


def _as_rgb(image: Image.Image) -> Image.Image:
    # Pillow's convert clips deep images to 255: 16 bits are scaled, other depths are refused.
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(f"it has 32 bits a pixel (mode {image.mode}); save it with 8 or 16")
    return image.convert("RGB")


def image_files(folder: Path) -> Iterator[str]:
    """All image files below ``folder``, in sorted order; hidden ones are left out."""
    for root, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.lower().endswith(EXTENSIONS) and not name.startswith("."):
                yield os.path.join(root, name)


def folder_images(
    folder: str | Path, *, labelled: bool = True, classes: Sequence[str] | None = None
) -> ImageSet:
    """The images of a folder: one class a subfolder, or without labels all that lie below it.

    Args:
        folder: the folder.
        labelled: whether subfolders are classes.
        classes: names to number the classes by, for a second folder of the same classes.

    Raises:
        FileNotFoundError: no such folder, or no image in it (or in its subfolders, if labelled).
        ValueError: a class folder that ``classes`` does not name.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    if not labelled:
        paths = list(image_files(folder))
        if not paths:
            raise FileNotFoundError(f"no image ({', '.join(EXTENSIONS)}) in or below {folder}")
        return ImageSet(paths, np.full(len(paths), UNLABELLED), [])
    per_class = {name: list(image_files(folder / name)) for name in class_folders(folder)}
    per_class = {name: paths for name, paths in per_class.items() if paths}
    if not per_class:
        raise FileNotFoundError(
            f"no class folder with images in {folder}; for images without labels set "
            "data.no_labels=true"
        )
    loose = sum(
        entry.is_file() and entry.name.lower().endswith(EXTENSIONS) for entry in os.scandir(folder)
    )
    if loose:
        raise ValueError(
            f"{folder} holds {loose} images beside its class folders "
            f"({', '.join(list(per_class)[:5])}); move them into one, or take all "
            "images without labels by data.no_labels=true"
        )
    names = list(classes) if classes is not None else list(per_class)
    unknown = sorted(set(per_class) - set(names))
    if unknown:
        raise ValueError(
            f"{folder} has the class folders {', '.join(unknown)}, which the training images lack"
        )
    paths = [path for name in per_class for path in per_class[name]]
    labels = [names.index(name) for name in per_class for _ in per_class[name]]
    return ImageSet(paths, np.asarray(labels, dtype=np.int64), names)


def class_folders(folder: str | Path) -> list[str]:
    """Names of the subfolders, sorted, without hidden ones."""
    return sorted(
        entry.name
        for entry in os.scandir(folder)
        if entry.is_dir() and not entry.name.startswith(".")
    )
