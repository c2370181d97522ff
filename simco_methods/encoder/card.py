"""What is known of an encoder beside its weights, as a small JSON file."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from simco_methods.data.transforms import Preprocessing

FORMAT = 1
# Keys of a configuration that tell where a run was made, not what it is.
_PRIVATE = {
    "": ("output_dir", "resume_from_checkpoint", "checkpoint", "wandb", "hydra", "auto_resume"),
    "data": ("train_path", "val_path"),
    "analysis": ("folder",),
}


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
        content = {"format": FORMAT, **dataclasses.asdict(self)}
        settings = {**self.settings}
        for group, names in _PRIVATE.items():
            if not group:
                settings = {k: v for k, v in settings.items() if k not in names}
            elif isinstance(settings.get(group), dict):
                settings[group] = {k: v for k, v in settings[group].items() if k not in names}
        return {**content, "settings": settings}

    @classmethod
    def from_json(cls, content: Any, source: Any) -> Card:
        """The card of a file's content.

        Args:
            content: as of :meth:`to_json`; keys that are not known are left out.
            source: what to call it in an error.

        Raises:
            ValueError: another format, or no card.
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
            mean, std = tuple(seen["mean"]), tuple(seen["std"])
            seen = Preprocessing(int(seen["size"]), int(seen["resize"]), mean, std)
            return cls(**values, preprocessing=seen)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{source} is no whole card of an encoder ({error!r})") from error
