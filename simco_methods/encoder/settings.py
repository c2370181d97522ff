"""The settings that every command on an encoder has."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from omegaconf import DictConfig, OmegaConf

from simco_methods.config.checks import each, flag, integer, number, optional, text
from simco_methods.files import user_path
from simco_methods.settings import setting

if TYPE_CHECKING:
    from simco_methods.encoder.encoder import Encoder


@dataclass
class SourceSettings:
    """How an encoder is loaded.

    Attributes:
        backbone: ``backbone.name=NAME`` and ``backbone.kwargs.*``: the network, where the file does
            not say (a state dict of torchvision's or timm's): one of the configs' names, one of
            timm's, or ``torchvision.NAME``.
        prefix: of the backbone's weights in the file, or the end of it; by default the one with
            most of them, and of several alike the trained network rather than its moving average
            (``prefix=momentum_backbone.`` takes that).
        size: side of the images that the network gets; by default as it was trained, else 224.
        mean, std: of the channels, three numbers each; by default as it was trained, else
            ImageNet's.
        trusted: read a checkpoint that holds more than plain values, which may run any code.
        out: folder to write to; by default beside the encoder.
    """

    CONFIG: ClassVar[tuple[str, ...]] = ("backbone",)

    prefix: str | None = setting(None, optional(text))
    size: int | None = setting(None, optional(integer(1)))
    mean: list[float] | None = setting(None, optional(each(number(0, 1))))
    std: list[float] | None = setting(None, optional(each(number(0, open_low=True))))
    trusted: bool = setting(False, flag)
    out: str | None = setting(None, optional(text))
    config: DictConfig = field(default_factory=lambda: OmegaConf.create({}))

    def load(self, source: str, device: str = "cpu") -> Encoder:
        """The encoder; see :func:`~simco_methods.encoder.load_encoder`."""
        from simco_methods.encoder.loading import load_encoder

        kwargs = OmegaConf.select(self.config, "backbone.kwargs")
        return load_encoder(
            source,
            backbone=OmegaConf.select(self.config, "backbone.name"),
            kwargs=None if kwargs is None else OmegaConf.to_container(kwargs),
            prefix=self.prefix,
            size=self.size,
            mean=self.mean,
            std=self.std,
            trusted=self.trusted,
            device=device,
        )

    def out_folder(self, source: str | Path, kind: str) -> Path:
        """Where the results go; see :func:`results_folder`."""
        return results_folder(self.out, source, kind)


@dataclass
class EncoderSettings(SourceSettings):
    """How an encoder is loaded, and on what it runs.

    Attributes:
        device: "auto", "cpu", "cuda", "cuda:1" ...
        batch_size: images at a time.
        num_workers: processes that read images which do not fit into memory.
    """

    device: str = setting("auto", text)
    batch_size: int = setting(256, integer(1))
    num_workers: int = setting(2, integer(0))

    def load(self, source: str) -> Encoder:
        """The encoder, on its device."""
        return super().load(source, self.device)


def results_folder(out: str | None, source: str | Path, kind: str) -> Path:
    """Where the results of a command go. Nothing is made; see :func:`check_folder`.

    Args:
        out: the folder; by default ``<source>-<kind>`` beside the encoder, in a run's folder
            ``<kind>``.
        source: what the encoder was loaded from.
        kind: "linear", "knn" ...

    Raises:
        ValueError: one that cannot be written to.
    """
    path = Path(source)
    path = path / kind if path.is_dir() else path.with_name(f"{path.stem}-{kind}")
    path = path if out is None else user_path(out)
    check_folder(path)
    return path


def check_folder(path: Path) -> None:
    """Refuses a folder that can be neither written to nor made, before the work for it is done.

    Raises:
        ValueError: something else is there, or on the way there; or it may not be written to.
    """
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise ValueError(f"{there} is no folder; set out=FOLDER")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"{there} may not be written to; set out=FOLDER")
