"""Label files: a CSV or TSV that names images and their classes, for folders that do not tell."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from simco_methods.data.decode import EXTENSIONS, printable
from simco_methods.data.folders import (
    Places,
    class_folders,
    ending_of,
    image_files,
    left_out_classes,
    left_out_lines,
    listed,
    no_folder,
)
from simco_methods.data.images import UNLABELLED, ImageSet

# Names of columns in a header, without case, spaces, "_", "-" and "."; of several the first.
_FILE = ("path", "filepath", "file", "filename", "image", "imagepath", "imagefile", "imagename")
_LABEL = ("label", "labels", "class", "classname", "classid", "category", "target", "wnid")
IMAGES = "images"  # the subfolder of Tiny-ImageNet's parts
_OWN = ("val_annotations.txt", "labels.csv", "labels.tsv")
_SHOWN = 5  # faults in a message
_DIGITS = re.compile("[0-9]{1,18}")


def own_label_file(folder: Path) -> Path | None:
    """The label file in a folder without class folders: ``labels.csv``, ``labels.tsv``, or
    ``val_annotations.txt`` of Tiny-ImageNet, whose images may lie in ``images/``."""
    if not folder.is_dir() or set(class_folders(folder)) - {IMAGES}:
        return None
    return _among(folder, _OWN)


def label_file_near(folder: Path) -> Path | None:
    """A file in or beside ``folder`` that by its name holds the labels of its images."""
    if not folder.is_dir():
        return None
    beside = [f"{folder.name.lower()}{end}" for end in (".csv", ".tsv")]
    return _among(folder, [*_OWN, *beside]) or _among(folder.absolute().parent, beside)


def _among(folder: Path, names: Sequence[str]) -> Path | None:
    there = {name.lower(): name for name in sorted(os.listdir(folder), reverse=True)}
    found = [folder / there[name] for name in names if name in there]
    return next((path for path in found if path.is_file()), None)


def labelled_by_file(
    folder: Path,
    file: Path,
    classes: Sequence[str] | None = None,
    other: Path | None = None,
) -> ImageSet:
    """The images below a folder that a file names, with the classes that it gives them.

    A row is a file's name and its label, in the columns that a header names (such as ``file`` and
    ``label``, or ``Path`` and ``ClassId``) or else in the first two; separated by tabs, commas,
    semicolons or spaces. Names are relative to the folder or to the label file. A row without a
    label is an image without one. Rows of files that lie elsewhere are of another folder; images
    without a row are left out, and counted in the notes.

    Args:
        folder: where the images are, at any depth.
        file: the label file.
        classes: names to number the classes by, for a second folder of the same classes.
        other: a second folder that the same file holds the labels of.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: rows that name no file, that disagree or have no two columns, with their lines;
            no image of the folder, or a class that ``classes`` does not name.
    """
    if not folder.is_dir():
        raise no_folder(folder)
    if not file.is_file():
        raise FileNotFoundError(f"there is no label file {printable(file)}")
    others: Counter[str] = Counter()
    place = Places()
    paths = {place(path): path for path in image_files(folder, others)}
    rows = _Rows(file)
    roots = [str(folder), str(file.parent), os.path.join(folder, IMAGES)]
    if other is not None and place(folder / "x") == place(other / "x"):
        other = None
    beyond = roots if other is None else [*roots, str(other)]
    found: dict[str, tuple[str, int]] = {}  # label and line of each image
    unread: dict[str, Counter[str]] = {}  # endings of the files of a label that are not read
    inside = os.path.join(os.path.realpath(folder), "")
    faults: list[str] = []
    for line, name, label in rows:
        key = next((k for root in roots if (k := place(os.path.join(root, name))) in paths), None)
        if key is None:
            there = next(
                (p for root in beyond if os.path.exists(p := os.path.join(root, name))), ""
            )
            if there and place(there).startswith(inside):
                unread.setdefault(label, Counter())[ending_of(name)] += 1
            elif not there:
                faults.append(f"line {line}: there is no {printable(name)} in {printable(folder)}")
        elif other is not None and place(there := other / name) != key and os.path.exists(there):
            faults.append(
                f"line {line}: {printable(name)} is in {printable(folder)} and in "
                f"{printable(other)}; name it from the folder of the label file"
            )
        elif found.setdefault(key, (label, line))[0] != label:
            was, before = found[key]
            faults.append(
                f"line {line}: {printable(name)} is of class {_called(label)}, by line {before} of "
                f"{_called(was)}"
            )
    faults += rows.faults
    if faults:
        more = [f"and {len(faults) - _SHOWN:,} more"] if len(faults) > _SHOWN else []
        shown = "\n".join(f"  {fault}" for fault in [*faults[:_SHOWN], *more])
        raise ValueError(f"{printable(file)} cannot be taken as labels{rows.hint}:\n{shown}")
    if not found:
        raise ValueError(f"{printable(file)} names no image in {printable(folder)}")
    kept = [(path, found[key][0]) for key, path in paths.items() if key in found]
    names = sorted({label for _, label in kept} - {""}) if classes is None else list(classes)
    number = _numbers(names)
    unknown = sorted({label for _, label in kept if label and number(label) is None})
    if unknown:
        raise ValueError(
            f"{printable(file)} has {len(unknown)} class(es) that the training images lack: "
            f"{listed(unknown)}"
        )
    labels = [number(label) if label else UNLABELLED for _, label in kept]
    if place(file).startswith(inside):
        others -= Counter({file.suffix.lower(): 1})
    notes = left_out_lines(folder, others)
    read = {label for _, label in kept}
    without = {label: unread[label] for label in sorted(set(unread) - read) if label}
    notes += left_out_classes(file, "classes", without)
    notes.append(f"labels of {printable(folder)}: {printable(file)}, {rows.columns}")
    if len(kept) < len(paths):
        notes.append(
            f"{len(paths) - len(kept):,} of {len(paths):,} images in {printable(folder)} have no "
            f"row in {printable(file)} and are left out"
        )
    return ImageSet([path for path, _ in kept], np.asarray(labels, np.int64), names, notes)


def _called(label: str) -> str:
    return printable(label) or "none"


def _numbers(names: Sequence[str]) -> Callable[[str], int | None]:
    """From a label to the number of its class; where all names are numbers, ``3`` is ``00003``."""
    number = {name: row for row, name in enumerate(names)}
    values = {int(name): row for name, row in number.items() if _DIGITS.fullmatch(name)}
    if len(values) < len(names):
        values = {}

    def find(label: str) -> int | None:
        alike = values.get(int(label)) if _DIGITS.fullmatch(label) else None
        return number.get(label, alike)

    return find


class _Rows:
    """The rows (line, name, label) of a label file.

    Attributes:
        columns: which columns they are from, in words; after the first row.
        hint: how to name the columns, where there is no header.
        faults: of rows without the two columns; after the last row.
    """

    def __init__(self, file: Path):
        self.file = file
        self.columns = self.hint = ""
        self.faults: list[str] = []

    def __iter__(self) -> Iterator[tuple[int, str, str]]:
        with open(self.file, newline="", encoding="utf-8-sig", errors="surrogateescape") as lines:
            separator = _separator(next((line for line in lines if line.strip()), ""))
            lines.seek(0)
            reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
            where: tuple[int, int] | None = None
            try:
                for row in reader:
                    row = [cell.strip() for cell in row]
                    if not any(row):
                        continue
                    if where is None:
                        where = self._header(row)
                        if self.columns:
                            continue
                        self.columns = "columns 1 and 2"
                        self.hint = " (it has no header such as file,label)"
                    if len(row) <= max(where):
                        self.faults.append(
                            f"line {reader.line_num}: {len(row)} column(s), there should be "
                            f"{max(where) + 1} or more"
                        )
                    elif "\0" in row[where[0]]:
                        self.faults.append(f"line {reader.line_num}: a name with a zero byte")
                    elif row[where[0]]:
                        yield reader.line_num, row[where[0]], row[where[1]]
            except csv.Error as error:
                self.faults.append(f"line {reader.line_num}: {error}")

    def _header(self, row: Sequence[str]) -> tuple[int, int]:
        if any(cell.lower().endswith(EXTENSIONS) for cell in row):
            return 0, 1
        plain = [re.sub(r"[\s_.-]", "", cell).lower() for cell in row]
        file, label = (
            next((plain.index(name) for name in names if name in plain), None)
            for names in (_FILE, _LABEL)
        )
        if len(row) == 2 and (file is None) != (label is None):
            file, label = (1 - label, label) if file is None else (file, 1 - file)
        if file is None or label is None:
            return 0, 1
        self.columns = f"columns {printable(row[file])} and {printable(row[label])}"
        return file, label


def _separator(line: str) -> str:
    if "\t" in line:
        return "\t"
    found = max(",;", key=line.count)
    return found if found in line else " "
