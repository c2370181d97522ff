"""The settings of ``simco-visualize``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from simco_methods.config.checks import each, integer, one_of, optional, text
from simco_methods.embedding.settings import MOST_NEIGHBOURS
from simco_methods.encoder.settings import EncoderSettings
from simco_methods.options import MAPS, ON_ERROR
from simco_methods.settings import setting


@dataclass
class VisualizeSettings(EncoderSettings):
    """What ``simco-visualize ENCODER key=value ...`` takes.

    Attributes:
        data: ``data.dataset``, ``data.train_path``, ``data.val_path``, ...: labelled images; by
            default those that the encoder was trained on.
        folder: a folder of any images instead; folders in it that hold all of them are classes.
        split: of the data, "val" or "train"; by default "val" where there are such images.
        images: how many are shown, of each class its share.
        on_error: what an image that cannot be read does: "raise", or "skip".
        method: of the map: "umap" (needs umap-learn), "tsne", "pca", or "auto": umap if it is
            installed, else tsne.
        query: an image, or several, whose neighbours are shown; by default some are drawn.
        examples: how many images are drawn for their neighbours and for the augmentations.
        neighbours: of each of them.
        views: of each entry of the training's augmentations.
        runs: folders of other runs whose curves go on one figure with the encoder's own.
        seed: of all that is drawn.
    """

    CONFIG: ClassVar[tuple[str, ...]] = ("backbone", "data")

    folder: str | None = setting(None, optional(text))
    split: str | None = setting(None, optional(one_of("val", "train")))
    images: int = setting(2000, integer(1))
    on_error: str = setting("raise", one_of(*ON_ERROR))
    method: str = setting("auto", one_of("auto", *MAPS))
    query: Any = setting(None, optional(each(text)), listed=True)
    examples: int = setting(6, integer(1, 50))
    neighbours: int = setting(10, integer(1, MOST_NEIGHBOURS))
    views: int = setting(4, integer(1, 20))
    runs: Any = setting(None, optional(each(text)), listed=True)
    seed: int = setting(0, integer(0, 2**32 - 1))

    def __post_init__(self):
        if self.folder is not None and "data" in self.config:
            raise ValueError("folder and data.* both say which images: set one of them")
        if self.folder is not None and self.split is not None:
            raise ValueError(f"split={self.split} is of data.*; a folder has no splits")
