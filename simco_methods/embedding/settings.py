"""The settings of ``simco-embed``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simco_methods.config.checks import each, integer, one_of, optional, text
from simco_methods.encoder.settings import EncoderSettings
from simco_methods.options import FEATURE_FORMATS, FEATURE_TYPES, ON_ERROR
from simco_methods.settings import setting

MOST_NEIGHBOURS, MOST_QUERIES = 100, 100  # that a contact sheet can show


@dataclass
class EmbedSettings(EncoderSettings):
    """What ``simco-embed ENCODER FOLDER key=value ...`` takes.

    Attributes:
        format: "npy" (``features.npy``, and ``paths.csv`` with the path of each row) or "parquet"
            (``features.parquet``, columns ``path`` and ``feature``; needs pyarrow).
        dtype: "float32" or "float16".
        on_error: what an image that cannot be read does: "raise", or "skip" (it is left out, and
            listed in ``skipped.csv`` with the reason).
        query: an image, or several, whose nearest images in the folder are drawn on a sheet.
        neighbours: how many of them for each query, by default 10.
        out: folder to write to; by default beside the encoder, with the name of FOLDER.
    """

    format: str = setting("npy", one_of(*FEATURE_FORMATS))
    dtype: str = setting("float32", one_of(*FEATURE_TYPES))
    on_error: str = setting("raise", one_of(*ON_ERROR))
    query: Any = setting(None, optional(each(text)), listed=True)
    neighbours: int | None = setting(None, optional(integer(1, MOST_NEIGHBOURS)))

    def __post_init__(self):
        if self.query is None:
            if self.neighbours is not None:
                raise ValueError(
                    f"neighbours={self.neighbours}: of an image; name it by query=IMAGE"
                )
            return
        self.neighbours = self.neighbours or 10
        if len(self.query) > MOST_QUERIES:
            raise ValueError(
                f"query: {len(self.query)} images, at most {MOST_QUERIES} go on one sheet"
            )
