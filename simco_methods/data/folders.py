"""Folders of images: which files are images, and which class they are of."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from simco_methods.data.decode import ENDINGS, EXTENSIONS, FORMATS, INSTALL, printable
from simco_methods.data.images import UNLABELLED, ImageSet

_SHOWN = 5  # endings, or names, in a line


class ImageFolderError(Exception):
    """A folder whose images cannot be taken as they lie.

    Attributes:
        fault: what is wrong with it.
        advice: the end of the message: what to do, which depends on what the images are for.
    """

    def __init__(self, fault: str, advice: str = ""):
        super().__init__(fault + advice)
        self.fault, self.advice = fault, advice

    def advised(self, advice: str) -> ImageFolderError:
        """The same error with another advice."""
        return type(self)(self.fault, advice)


class NoClassFolders(ImageFolderError, FileNotFoundError):
    """No subfolder with images, so no classes."""


class LooseImages(ImageFolderError, ValueError):
    """Images beside the class folders, so of no class."""


class SplitFolders(ImageFolderError, ValueError):
    """The parts of a split, such as ``train`` and ``val``, where one of them was expected."""


def image_files(folder: str | Path, others: Counter[str] | None = None) -> Iterator[str]:
    """All image files below ``folder``, in sorted order; hidden ones are left out.

    Links are followed, but into no folder twice, nor back into one that holds ``folder``.

    Args:
        folder: where to look.
        others: counts here the files whose endings are not read, by ending.

    Raises:
        OSError: a folder that cannot be listed, by its path.
    """
    folder = Path(folder)
    start = folder.absolute()
    around = {start.parent.resolve(), *start.parent.resolve().parents, *start.resolve().parents}
    seen = {file_identity(parent) for parent in around}

    def is_new(path: str) -> bool:
        before = len(seen)
        seen.add(file_identity(path))
        return len(seen) > before

    if not is_new(folder):
        return
    for root, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        visible = sorted(name for name in folders if not name.startswith("."))
        folders[:] = [name for name in visible if is_new(os.path.join(root, name))]
        for name in sorted(files):
            if name.startswith("."):
                continue
            if name.lower().endswith(EXTENSIONS):
                yield os.path.join(root, name)
            elif others is not None:
                others[ending_of(name)] += 1


def ending_of(name: str) -> str:
    """The ending of a file's name in lower case, with its dot."""
    return os.path.splitext(name)[1].lower()


def file_identity(path: str | Path) -> tuple[int, int]:
    """What a file or folder is on disk, by whatever path or link."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


class Places:
    """The one path of a file, whatever links lead to its folder; each folder is looked up once."""

    def __init__(self):
        self._folders: dict[str, str] = {}

    def __call__(self, path: str | Path) -> str:
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)


def _raise(error: OSError) -> None:
    raise error


def no_folder(folder: Path) -> FileNotFoundError:
    """What to raise for a folder that is not there; of a relative one it says from where."""
    within = "" if folder.is_absolute() else f" in {printable(Path.cwd())}"
    return FileNotFoundError(f"there is no folder {printable(folder)}{within}")


def folder_images(
    folder: str | Path, *, labelled: bool = True, classes: Sequence[str] | None = None
) -> ImageSet:
    """The images of a folder: one class a subfolder, or without labels all that lie below it.

    Args:
        folder: the folder.
        labelled: whether subfolders are classes; those without images are none.
        classes: names to number the classes by, for a second folder of the same classes.

    Raises:
        FileNotFoundError: no such folder, or no image in it.
        NoClassFolders, LooseImages: no image in its subfolders, or some beside them, if labelled.
        ValueError: a class folder that ``classes`` does not name.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise no_folder(folder)
    if not labelled:
        others: Counter[str] = Counter()
        paths = list(image_files(folder, others))
        if not paths:
            raise FileNotFoundError(
                f"no image ({', '.join(FORMATS)}) in or below {printable(folder)}"
                + _not_read(others)
            )
        return ImageSet(paths, np.full(len(paths), UNLABELLED), [], left_out_lines(folder, others))
    left_out = {name: Counter() for name in class_folders(folder)}
    per_class = {name: list(image_files(folder / name, left_out[name])) for name in left_out}
    per_class = {name: paths for name, paths in per_class.items() if paths}
    others, loose = sum(left_out.values(), Counter()), 0
    for entry in os.scandir(folder):
        if not entry.name.startswith(".") and not _is_folder(entry):
            if entry.name.lower().endswith(EXTENSIONS):
                loose += 1
            else:
                others[ending_of(entry.name)] += 1
    if not per_class:
        raise NoClassFolders(
            f"no class folder with images in {printable(folder)}{_not_read(others)}"
        )
    if loose:
        raise LooseImages(
            f"{printable(folder)} holds {loose} images beside its class folders "
            f"({listed(per_class)})"
        )
    names = list(classes) if classes is not None else list(per_class)
    number = {name: row for row, name in enumerate(names)}
    unknown = sorted(set(per_class) - set(number))
    if unknown:
        raise ValueError(
            f"{printable(folder)} has the class folders {listed(unknown)}, which the training "
            "images lack (a class folder in which no image can be read is no class)"
        )
    paths = [path for found in per_class.values() for path in found]
    labels = [number[name] for name, found in per_class.items() for _ in found]
    without = {name: found for name, found in left_out.items() if name not in per_class}
    notes = left_out_lines(folder, others)
    notes += left_out_classes(folder, "class folders", without)
    return ImageSet(paths, np.asarray(labels, dtype=np.int64), names, notes)


def class_folders(folder: str | Path) -> list[str]:
    """Names of the subfolders, sorted, without hidden ones."""
    return sorted(
        entry.name
        for entry in os.scandir(folder)
        if not entry.name.startswith(".") and _is_folder(entry)
    )


def _is_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def listed(names: Collection[str]) -> str:
    """``a, b, c``, the first five of them."""
    shown = ", ".join(map(printable, islice(names, _SHOWN)))
    return shown + (", ..." if len(names) > _SHOWN else "")


def endings(others: Mapping[str, int]) -> str:
    """``12 .heic, 3 .txt``, the most frequent first."""
    counts = sorted(others.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{count:,} {printable(end) or 'nameless'}" for end, count in counts[:_SHOWN])
    more = sum(count for _, count in counts[_SHOWN:])
    return shown + (f" and {more:,} of other kinds" if more else "")


def left_out_lines(folder: str | Path, others: Mapping[str, int]) -> list[str]:
    """A line with the number of files in ``folder`` that are not read, by ending; none if all are.

    Args:
        folder: that they are in.
        others: as :func:`image_files` counts them.
    """
    if not others:
        return []
    hint = _hint(others)
    return [f"{printable(folder)}: left out: {endings(others)}{hint and f' ({hint})'}"]


def left_out_classes(
    where: str | Path, what: str, without: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """A line with the names of classes of which no image can be read; none if there are none.

    Args:
        where: the folder or file that they are of.
        what: "classes" or "class folders".
        without: the number of other files of each, by ending.
    """
    if not without:
        return []
    shown = [
        f"{printable(name)} ({endings(others) if others else 'empty'})"
        for name, others in list(without.items())[:_SHOWN]
    ]
    more = f", and {len(without) - _SHOWN:,} more" if len(without) > _SHOWN else ""
    return [
        f"{printable(where)}: {what} without a readable image, left out: {', '.join(shown)}{more}"
    ]


def _hint(others: Mapping[str, int]) -> str:
    """How to have files read that are photographs by their names."""
    there = {name: [end for end in ENDINGS[name] if end in others] for name in INSTALL}
    hints = [f"to read {', '.join(ends)}: {INSTALL[name]}" for name, ends in there.items() if ends]
    return "; ".join([*hints, "or convert them to JPEG"]) if hints else ""


def _not_read(others: Mapping[str, int]) -> str:
    """What a folder without images does hold, for a message."""
    if not others:
        return ""
    hint = _hint(others)
    return f" (it holds {endings(others)} files, which are not read{hint and f'; {hint}'})"
