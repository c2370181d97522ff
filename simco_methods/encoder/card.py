"""What is known of an encoder beside its weights, as a small JSON file."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from simco_methods.data.transforms import Preprocessing
from simco_methods.files import rounded

FORMAT = 1
# Keys of a configuration that tell where a run was made, not what it is.
_PLACES = (
    "output_dir",
    "resume_from_checkpoint",
    "pretrained_feature_extractor",
    "checkpoint",
    "wandb",
    "hydra",
    "auto_resume",
)
_PLACE = re.compile(r"(^|_)(path|dir|folder|file)$|^(val_)?labels$")


@dataclass
class Card:
    """Facts of an encoder; those of its training are empty where they are not known.

    Attributes:
        backbone: name, as ``backbone.name`` of a config.
        kwargs: ``backbone.kwargs``.
        small_stem: whether ``resnet18`` or ``resnet50`` has solo-learn's stem for CIFAR, a 3x3
            convolution with padding 2 and no max-pool.
        preprocessing: of the images.
        features: how many the encoder gives an image.
        method: that it was trained by.
        dataset: name of the data set that it was trained on.
        classes: names of that data set's classes.
        epochs, steps: of training.
        accuracies: of the last epoch, in percent, by their names in ``summary.json``.
        settings: the whole configuration of its training.
        versions: of the packages that it was trained with.
    """

    backbone: str
    kwargs: dict[str, Any]
    small_stem: bool
    preprocessing: Preprocessing
    features: int = 0
    method: str | None = None
    dataset: str | None = None
    classes: list[str] = field(default_factory=list)
    epochs: int | None = None
    steps: int | None = None
    accuracies: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The content of a card's file, without the paths of the machine that it is written on."""
        settings = {k: v for k, v in self.settings.items() if k not in _PLACES}
        accuracies = rounded(self.accuracies)
        content = dataclasses.asdict(
            replace(self, settings=_without_places(settings), accuracies=accuracies)
        )
        return {"format": FORMAT, **content}

    @classmethod
    def from_json(cls, content: Any, source: Any) -> Card:
        """The card of a file's content.

        Args:
            content: as of :meth:`to_json`, or its text; keys that are not known are left out.
            source: what to call it in an error.

        Raises:
            ValueError: another format, or no whole card.
        """
        if isinstance(content, str):
            try:
                content = json.loads(content)
            except ValueError as error:
                raise ValueError(f"{source} is no JSON: {error}") from error
        if not isinstance(content, dict) or "format" not in content:
            raise ValueError(f"{source} is no card of an encoder")
        if content["format"] != FORMAT:
            raise ValueError(
                f"{source} is of format {content['format']!r}, this version reads {FORMAT}"
            )
        try:
            known = {f.name for f in dataclasses.fields(cls)}
            values = {name: value for name, value in content.items() if name in known}
            seen = values.pop("preprocessing")
            card = cls(**values, preprocessing=_preprocessing(seen))
            for name, kind in _KINDS.items():
                if not isinstance(getattr(card, name), kind):
                    raise ValueError(f"{name}={getattr(card, name)!r}")
            return card
        except (KeyError, TypeError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"{source} is no whole card of an encoder ({what})") from error


# Of what a network is built from.
_KINDS = {"backbone": str, "kwargs": dict, "small_stem": bool, "classes": list, "settings": dict}


def _preprocessing(content: Mapping[str, Any]) -> Preprocessing:
    size, resize = int(content["size"]), int(content["resize"])
    mean, std = (tuple(map(float, content[name])) for name in ("mean", "std"))
    if not (min(size, resize) > 0 and len(mean) == len(std) == 3 and min(std) > 0):
        raise ValueError(f"preprocessing={content}")
    return Preprocessing(size, resize, mean, std)


def _without_places(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: _without_places(v) for k, v in node.items() if not _PLACE.search(str(k))}
    if isinstance(node, list):
        return [_without_places(value) for value in node if not _is_place(value)]
    return None if _is_place(node) else node


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and os.path.isabs(value)
