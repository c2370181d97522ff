"""Files that are written whole or not at all, and locks between processes."""

from __future__ import annotations

import csv
import glob
import io
import json
import math
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_PERCENT = re.compile(r"(^|_)acc[15]$|per_class$")


def user_path(text: str) -> Path:
    """A path as a user wrote it: one that is there, else with ``~`` for the home folder.

    What begins with ``~`` and names no user's home is a name like any other.
    """
    return Path(text if os.path.lexists(text) else os.path.expanduser(text))


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name to write a file under, which comes to ``path`` when all of it is written."""
    part = _part(path.parent, path.name)
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def rounded(node: Any, name: str = "") -> Any:
    """Numbers as they are read: accuracies in percent to 4 decimals, others to 8 significant
    digits, which is what a float32 holds.

    For what was measured and is written for people; what a program takes up again stays exact.

    Args:
        node: a number, or mappings and sequences of them; other values stay as they are.
        name: the key that it has, which tells accuracies; an accuracy's mapping is one of classes.
    """
    percent = _PERCENT.search(name) is not None
    if isinstance(node, Mapping):
        return {key: rounded(value, name if percent else str(key)) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [rounded(value, name) for value in node]
    if not isinstance(node, float) or not math.isfinite(node):
        return node
    return round(float(node), 4) if percent else float(f"{node:.8g}")


def write_text(path: Path, content: str) -> None:
    """Writes a file whole or not at all."""
    with whole(path) as part:
        part.write_text(content, encoding="utf-8")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file whole or not at all."""
    write_text(path, json.dumps(_without_nan(content), indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a CSV file whole or not at all, with all columns that any row has, its numbers
    :func:`rounded`."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rounded(row) for row in rows)
    write_text(path, text.getvalue())


@contextmanager
def together(folder: Path, names: Sequence[str] = ()) -> Iterator[Path]:
    """A folder to write several files into, which come to ``folder`` when all are written.

    Args:
        folder: made if need be.
        names: what an earlier time may have left there, which goes unless it is written anew.
    """
    new = not folder.exists()
    part = _part(folder, "files")
    part.mkdir(parents=True)
    try:
        yield part
        made = {path.name for path in part.iterdir()}
        for name in set(names) - made:
            (folder / name).unlink(missing_ok=True)
        for name in sorted(made):
            os.replace(part / name, folder / name)
        new = False
    finally:
        shutil.rmtree(folder if new else part, ignore_errors=True)


def _part(folder: Path, name: str) -> Path:
    """This process's own hidden name for what is to become ``name``. What processes that were
    killed have left under such names goes, if they were of this machine."""
    machine = platform.node()
    for leftover in folder.glob(f".{glob.escape(name)}.*@{glob.escape(machine)}.part"):
        process = leftover.name.removeprefix(f".{name}.").partition("@")[0]
        if process.isdecimal() and not _runs(int(process)):
            remove = shutil.rmtree if leftover.is_dir() else os.unlink
            with suppress(OSError):  # somebody else may have done so
                remove(leftover)
    return folder / f".{name}.{os.getpid()}@{machine}.part"


def _runs(process: int) -> bool:
    """Whether another process of that number may be there."""
    if process == os.getpid():
        return False
    if os.name == "nt":
        return True  # there signal 0 is no question
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        pass
    return True


def lock(path: Path, wait: bool = False) -> int | None:
    """Takes the lock on the file ``path``, which ends with the last process that holds it, however
    that ends. On Windows nothing is locked.

    Args:
        path: made if need be, with its folder.
        wait: until whoever has it gives it back.

    Returns:
        Its file descriptor: the lock lasts until it is closed, here and in every process that it
        was handed to (``pass_fds``). None if another process has the lock.

    Raises:
        OSError: a file system that has no locks, by name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    if fcntl is None:
        return descriptor
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise OSError(f"{path}: its file system has no locks (flock): {error}") from error
    return descriptor


def _without_nan(node: Any) -> Any:
    # JSON has no NaN and no infinity: what is not a number is null.
    if isinstance(node, dict):
        return {key: _without_nan(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_nan(value) for value in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node
