"""The table of ``simco-transfer``, which is written anew after each data set."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from simco_methods.encoder import Encoder
from simco_methods.evaluation.linear_folder import check_identity
from simco_methods.files import lock, write_csv, write_json, write_text
from simco_methods.machine import hardware, versions
from simco_methods.measures import explained, has_top5, name_of
from simco_methods.page import markdown_table

SHOWN = ("knn_acc1", "untrained_knn_acc1", "linear_acc1")


class ResultsTable:
    """The results so far, and their files; as a context it keeps other processes from them.

    Args:
        path: of the folder.
        source: what the encoder was loaded from.
        encoder: that is evaluated.
        identity: what all rows have in common: of the encoder and the settings.

    Attributes:
        rows: what is known of each data set, by its name.

    Raises:
        ValueError: results there that cannot be read, or of another identity, with what differs.
    """

    COLUMNS: ClassVar[dict[str, str]] = {
        "train": "images",
        "test": "to test on",
        "classes": "classes",
        **{key: f"{name_of(key)} (%)" for key in SHOWN},
        "linear_acc5": f"{name_of('linear_acc5')} (%)",
        "seconds": "seconds",
    }

    def __init__(self, path: Path, source: str, encoder: Encoder, identity: dict[str, Any]):
        self.path, self.source, self.encoder, self.identity = path, source, encoder, identity
        self.rows: dict[str, dict[str, Any]] = {}
        results = path / "results.json"
        if results.is_file():
            try:
                content = json.loads(results.read_text(encoding="utf-8"))
                there, self.rows = content["identity"], content["datasets"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{results} cannot be read; remove it, or set out=FOLDER"
                ) from error
            check_identity(path, there, identity)
            for row in self.rows.values():
                if not has_top5(row.get("classes", 0)):  # as another version wrote it
                    row.pop("linear_acc5", None)

    def __enter__(self) -> None:
        self._lock = lock(self.path / ".lock")
        if self._lock is None:
            raise ValueError(f"another process is at work in {self.path}; wait for it")

    def __exit__(self, *_: Any) -> None:
        os.close(self._lock)

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Takes in a data set's row and writes all files."""
        self.rows[name] = row
        content = {
            "encoder": self.source,
            "card": {k: v for k, v in self.encoder.card.to_json().items() if k != "settings"},
            "identity": self.identity,
            "datasets": self.rows,
            "machine": hardware(self.encoder.device, 1),
            "versions": versions(),
        }
        lines = [
            {"data set": name, **{k: row.get(k) for k in self.COLUMNS}, "notes": _notes(row)}
            for name, row in self.rows.items()
        ]
        write_json(self.path / "results.json", content)
        write_csv(self.path / "table.csv", lines)
        write_text(self.path / "table.md", self.markdown())

    def markdown(self) -> str:
        """The table, without columns that are empty, and what its measures are."""
        used = [key for key in self.COLUMNS if any(key in row for row in self.rows.values())]
        lines = [["data set", *(self.COLUMNS[key] for key in used), "notes"]]
        for name, row in self.rows.items():
            lines.append([name, *(_shown(row.get(key)) for key in used), _notes(row)])
        said = explained(key for key in SHOWN if key in used)
        return "\n".join([markdown_table(lines), *(f"{line}  " for line in said)]) + "\n"


def _notes(row: dict[str, Any]) -> str:
    said: Sequence[str] = row.get("notes", [])
    return "; ".join([f"failed: {row['error']}"] if "error" in row else said).replace("\n", " ")


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}"
