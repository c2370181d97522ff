"""Features on disk: written piece by piece, gone on with after a kill, whole at the end."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simco_methods.embedding.parquet import write_parquet
from simco_methods.files import write_json

RECORD = "embedding.json"
_STATE, _FEATURES, _PATHS, _SKIPPED = "state.json", "features.npy", "paths.csv", "skipped.csv"
_COLUMNS = {_PATHS: ["path"], _SKIPPED: ["path", "reason"]}
_HEADER = 128  # bytes of an .npy file before its numbers, of any two-dimensional shape


class GrowingStore:
    """Features, paths and left-out images of a folder in files that grow.

    Args:
        folder: for the files; what is in it of the same ``identity`` is gone on with.
        identity: what the features are of.
        features: numbers an image.
        dtype: one of :data:`simco_methods.options.FEATURE_TYPES`.

    Attributes:
        seen: images of the folder that are done, those that were left out included.
        kept, skipped: how many of them have features, and how many were left out.
        began_anew: whether the folder held something of another identity, which is gone.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], features: int, dtype: str):
        self.folder, self.identity = folder, dict(identity)
        self.features, self.dtype = features, np.dtype(dtype)
        self.seen = self.kept = self.skipped = 0
        folder.mkdir(parents=True, exist_ok=True)
        state = _state(folder)
        resumed = state is not None and state["identity"] == self.identity
        self.began_anew = state is not None and not resumed
        self._files = {
            name: open(folder / name, "r+b" if resumed else "w+b")
            for name in (_FEATURES, _PATHS, _SKIPPED)
        }
        if resumed:
            self.seen, self.kept, self.skipped = (state[k] for k in ("seen", "kept", "skipped"))
            for name, size in state["bytes"].items():
                self._files[name].seek(size)
                self._files[name].truncate()
            return
        self._files[_FEATURES].write(npy_header(0, features, self.dtype))
        for name, columns in _COLUMNS.items():
            self._write_rows(name, [columns])

    def add(
        self, paths: Sequence[str], features: np.ndarray, skipped: Iterable[tuple[str, str]]
    ) -> None:
        """What has become of the next images.

        Args:
            paths: of those that were read.
            features: theirs, (N, F).
            skipped: path and reason of the others.
        """
        skipped = list(skipped)
        self._files[_FEATURES].write(np.ascontiguousarray(features, self.dtype))
        self._write_rows(_PATHS, ([path] for path in paths))
        self._write_rows(_SKIPPED, skipped)
        self.seen += len(paths) + len(skipped)
        self.kept += len(paths)
        self.skipped += len(skipped)

    def flush(self) -> None:
        """All of it is on the disk, and what comes after goes on from here."""
        sizes = {}
        for name, file in self._files.items():
            file.flush()
            os.fsync(file.fileno())
            sizes[name] = file.tell()
        counts = {"seen": self.seen, "kept": self.kept, "skipped": self.skipped}
        state = {"identity": self.identity, **counts, "bytes": sizes}
        write_json(self.folder / _STATE, state)

    def finish(self, form: str, record: Mapping[str, Any]) -> None:
        """Makes the files that :func:`publish` brings to their places.

        Args:
            form: one of :data:`simco_methods.options.FEATURE_FORMATS`.
            record: what :data:`RECORD` will hold.
        """
        header = self._files[_FEATURES]
        header.seek(0)
        header.write(npy_header(self.kept, self.features, self.dtype))
        self.close()
        files = [_FEATURES, _PATHS]
        if form == "parquet":
            features, paths = (self.folder / name for name in files)
            files = ["features.parquet"]
            write_parquet(self.folder / files[0], features, paths)
        if self.skipped:
            files.append(_SKIPPED)
        write_json(self.folder / RECORD, {**record, "files": files})

    def close(self) -> None:
        """Ends writing."""
        for file in self._files.values():
            file.close()

    def _write_rows(self, name: str, rows: Iterable[Sequence[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        # A file's name may hold bytes that are no UTF-8.
        self._files[name].write(text.getvalue().encode(errors="surrogateescape"))


def publish(folder: Path, out: Path) -> None:
    """Brings finished files from ``folder`` to ``out``, the record last, and removes ``folder``.

    Where a kill has left some in both, it goes on; where nothing is finished, it does nothing.
    """
    record = folder / RECORD
    if not record.is_file():
        return
    for name in json.loads(record.read_text(encoding="utf-8"))["files"]:
        if (folder / name).is_file():
            os.replace(folder / name, out / name)
    os.replace(record, out / RECORD)
    shutil.rmtree(folder)


def npy_header(rows: int, columns: int, dtype: np.dtype) -> bytes:
    """The beginning of an ``.npy`` file of (rows, columns), always of one length."""
    shape = {"descr": dtype.str, "fortran_order": False, "shape": (rows, columns)}
    # Of format 1.0: magic and version, the length of what follows, a literal padded with spaces.
    literal = repr(shape).encode().ljust(_HEADER - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + literal


def _state(folder: Path) -> dict[str, Any] | None:
    """What was flushed last, None if nothing was, or if a file is shorter than it says."""
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        if any((folder / name).stat().st_size < size for name, size in state["bytes"].items()):
            return None
        return state
    except (OSError, ValueError, KeyError):
        return None
