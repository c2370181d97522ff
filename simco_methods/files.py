"""Files that are written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_text(path: Path, content: str) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.write_text(content, encoding="utf-8")
    os.replace(temporary, path)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file whole or not at all."""
    write_text(path, json.dumps(_without_nan(content), indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a CSV file whole or not at all, with all columns that any row has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _without_nan(node: Any) -> Any:
    # JSON has no NaN and no infinity: what is not a number is null.
    if isinstance(node, dict):
        return {key: _without_nan(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_nan(value) for value in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node
