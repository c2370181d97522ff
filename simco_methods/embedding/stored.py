"""Finished features of a folder, read a part at a time."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simco_methods.embedding.parquet import PATHS_FILE, load_pyarrow
from simco_methods.embedding.store import RECORD


class StoredFeatures:
    """What ``simco-embed`` has left in a folder.

    Args:
        folder: with its ``embedding.json``.

    Attributes:
        record: what ``embedding.json`` holds.

    Raises:
        FileNotFoundError, ValueError: there is none, or it is broken.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        try:
            self.record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{folder / RECORD} is no JSON: {error}") from error

    def parts(self) -> Iterator[Tensor]:
        """The features in order, (N, F) at a time.

        An ``.npy`` file is one part, mapped into memory; a Parquet file one for each row group.
        """
        if self.record["format"] == "npy":
            # Copied on write, of which there is none: torch warns of arrays that are read-only.
            yield torch.from_numpy(np.load(self.folder / "features.npy", mmap_mode="c"))
            return
        for group in self._groups("feature"):
            values = group.combine_chunks().flatten().to_numpy(zero_copy_only=False)
            yield torch.from_numpy(values.reshape(len(group), -1).copy())

    def paths(self, rows: Sequence[int]) -> dict[int, str]:
        """The paths of some rows, relative to the folder of the images."""
        wanted = set(rows)
        return {row: path for row, path in enumerate(self._paths()) if row in wanted}

    def _paths(self) -> Iterator[str]:
        if self.record["format"] == "parquet":
            for group in self._groups("path"):
                yield from group.to_pylist()
            return
        with open(self.folder / "paths.csv", **PATHS_FILE) as file:
            lines = csv.reader(file)
            next(lines)
            yield from (line[0] for line in lines)

    def _groups(self, column: str) -> Iterator[Any]:
        file = load_pyarrow().parquet.ParquetFile(self.folder / "features.parquet")
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=[column]).column(column)
