"""The two sets of a kNN classifier: a bank of labelled images, and queries to classify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from omegaconf import OmegaConf

from simco_methods.data.folders import file_identity
from simco_methods.data.images import ImageSet
from simco_methods.encoder import Encoder
from simco_methods.evaluation.settings import EvaluationSettings
from simco_methods.evaluation.sides import (
    Sides,
    folder_advice,
    labelled_folder,
    lacking,
    read_sides,
)
from simco_methods.measures import no_top5

# What the sides of a data set are called.
_SIDES = {"train": "train", "test": "test", "val": "test"}


@dataclass
class BankAndQueries:
    """Labelled images, classes numbered alike in both sets.

    Attributes:
        bank: the images that vote.
        queries: the images that are classified.
        own: (queries,) the row of the bank that is the query itself, -1 for none; None where no
            image is in both.
        name: of the data set, or of the folders.
        notes: what is to be said of them, a line each.
    """

    bank: ImageSet
    queries: ImageSet
    own: np.ndarray | None
    name: str
    notes: Sequence[str]

    @property
    def classes(self) -> list[str]:
        """Names of the classes, which are those of the data set, whatever labels turn up."""
        return self.bank.classes

    @property
    def most(self) -> int:
        """How many neighbours each query has."""
        return len(self.bank) - (self.own is not None)


def bank_and_queries(
    settings: EvaluationSettings, encoder: Encoder, bank: str, queries: str
) -> BankAndQueries:
    """The images that ``bank`` and ``queries`` name.

    Args:
        settings: which data set, where one of them is a side of one.
        encoder: on which data set it was trained.
        bank, queries: "train", "test" (or "val"), or a folder of class folders.

    Raises:
        FileNotFoundError, ValueError: see :func:`~simco_methods.evaluation.sides.read_sides`.
    """
    if settings.fraction is not None and "train" not in (bank, queries):
        raise ValueError(
            f"fraction={settings.fraction:g}: of the training images, and bank={bank} and "
            f"queries={queries} are none"
        )
    if bank not in _SIDES and queries not in _SIDES:
        sides = _of_folders(settings, bank, queries)
        sets, notes = [sides.train, sides.test], list(sides.notes)
    else:
        sides = settings.sides(encoder)
        sets, notes = [], list(sides.notes)
        for name in (bank, queries):
            if name in _SIDES:
                sets.append(getattr(sides, _SIDES[name]))
            else:
                skip = OmegaConf.select(settings.config, "data.on_error", default="raise")
                sets.append(labelled_folder(name, sides.classes, skip, notes))
                notes += lacking(f"the images in {name}", sets[-1])
    notes += no_top5(len(sets[0].classes))
    own = own_rows(*sets)
    if own is not None:
        notes.append(
            f"{(own >= 0).sum():,} of {len(own):,} queries are images of the bank; none is its own "
            "neighbour"
        )
    return BankAndQueries(*sets, own, sides.name, notes)


def _of_folders(settings: EvaluationSettings, bank: str, queries: str) -> Sides:
    unused = [] if settings.test_share is None else ["test_share"]
    if "data" in settings.config:
        unused.append("data.*")
    if unused:
        raise ValueError(
            f"{', '.join(unused)}: of a data set, and bank={bank} and queries={queries} are folders"
        )
    data = {"dataset": "custom", "train_path": bank, "val_path": queries}
    with folder_advice():
        return read_sides(OmegaConf.create(data), None, None)


def own_rows(bank: ImageSet, queries: ImageSet) -> np.ndarray | None:
    """The row of the bank that is the same image as each query, (M,), -1 where there is none.

    Files are the same by what they are on disk, whatever their paths; images in memory only where
    the queries are the bank. None where no image is in both.
    """
    if queries is bank:
        return np.arange(len(bank))
    if isinstance(bank.images, np.ndarray) or isinstance(queries.images, np.ndarray):
        return None
    rows = {file_identity(path): row for row, path in enumerate(bank.images)}
    own = np.array([rows.get(file_identity(path), -1) for path in queries.images])
    return own if (own >= 0).any() else None
