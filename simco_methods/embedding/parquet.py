"""Features in a Parquet file, written and read a row group at a time."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np

PATHS_FILE = {"encoding": "utf-8", "errors": "surrogateescape", "newline": ""}  # how to open one
_GROUP_BYTES = 2**25  # of features in a row group


def load_pyarrow() -> Any:
    """The module ``pyarrow``, with ``pyarrow.parquet``.

    Raises:
        ImportError: it is not installed, with what installs it.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"format=parquet needs pyarrow ({error}): pip install 'simco-methods[parquet]', or "
            "take format=npy"
        ) from error
    return pyarrow


def write_parquet(path: Path, features: Path, paths: Path) -> None:
    """Columns ``path`` and ``feature``, a list of numbers, of an ``.npy`` file and its paths.

    A name that is no Unicode is written with its odd bytes escaped, which Parquet's text needs.
    """
    arrow = load_pyarrow()
    with open(features, "rb") as numbers, open(paths, **PATHS_FILE) as names:
        np.lib.format.read_magic(numbers)
        (count, width), _, dtype = np.lib.format.read_array_header_1_0(numbers)
        group = max(1, _GROUP_BYTES // (width * dtype.itemsize))
        rows = csv.reader(names)
        next(rows)
        kind = arrow.list_(arrow.from_numpy_dtype(dtype), width)
        schema = arrow.schema([("path", arrow.string()), ("feature", kind)])
        with arrow.parquet.ParquetWriter(path, schema) as writer:
            for first in range(0, count, group):
                size = min(group, count - first)
                values = arrow.array(np.fromfile(numbers, dtype, size * width))
                lists = arrow.FixedSizeListArray.from_arrays(values, width)
                some = [
                    row[0].encode(errors="backslashreplace").decode()
                    for row in itertools.islice(rows, size)
                ]
                writer.write_table(arrow.table([some, lists], schema=schema))
