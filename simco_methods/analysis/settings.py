"""The settings of ``simco-analyze``: what there is, what each may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import DictConfig, OmegaConf

from simco_methods.config.checks import each, flag, integer, number, one_of, optional, text
from simco_methods.config.during import TEMPERATURES
from simco_methods.encoder.settings import results_folder
from simco_methods.options import ANALYSES
from simco_methods.settings import setting


@dataclass
class Settings:
    """What ``simco-analyze CKPT key=value ...`` takes.

    Attributes:
        analysis: "all", or names: penalty, hardness, consistency, geometry, gradient.
        out: folder to write to; by default beside the checkpoint, named ``<checkpoint>-analysis``.
        seed: of the views and of the choice of anchors.
        split: whose images: "train" or "val".
        anchors: anchors in a batch; by default the batch size of training, of one process.
        batches: batches of anchors; by default 8, or as many as take half of the images.
        temperatures: each finite and above 0.
        sizes: of the dictionary; by default powers of 4 from 64 and all keys at hand, at most
            65,536.
        keys: where the dictionary's keys are from: "encoder" (images that are no anchors, through
            the network of the keys) or "queue" (the checkpoint's own, among which there may be
            views of the anchors' images, as in training).
        passes: views of each image in the dictionary.
        earlier: earlier checkpoints of the same run, for the consistency of keys.
        device: "auto", "cpu", "cuda", "cuda:1" ...
        batch_size: images forwarded at once; changes nothing but memory.
        num_workers: processes that make the views; changes nothing but time.
        trusted: read a checkpoint that holds more than plain values.
        config: ``data.*``, ``backbone.*``, ``augmentations`` to set over the checkpoint's own.
    """

    CONFIG: ClassVar[tuple[str, ...]] = ("data", "backbone", "augmentations")

    analysis: Any = setting("all", each(one_of("all", *ANALYSES)), listed=True, commas=True)
    out: str | None = setting(None, optional(text))
    seed: int = setting(0, integer(0))
    split: str = setting("train", one_of("train", "val"))
    anchors: int | None = setting(None, optional(integer(2)))
    batches: int | None = setting(None, optional(integer(1)))
    temperatures: list[float] = setting(
        list(TEMPERATURES), each(number(0, open_low=True)), listed=True
    )
    sizes: list[int] | None = setting(None, optional(each(integer(2))), listed=True)
    keys: str = setting("encoder", one_of("encoder", "queue"))
    passes: int = setting(1, integer(1))
    earlier: list[str] | None = setting(None, optional(each(text)), listed=True)
    device: str = setting("auto", text)
    batch_size: int = setting(256, integer(1))
    num_workers: int = setting(2, integer(0))
    trusted: bool = setting(False, flag)
    config: DictConfig = field(default_factory=lambda: OmegaConf.create({}))

    def out_folder(self, checkpoint: Path) -> Path:
        """Where the results go; see :func:`~simco_methods.encoder.settings.results_folder`."""
        return results_folder(self.out, checkpoint, "analysis")
