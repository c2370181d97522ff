"""The settings that every evaluation has, and the labelled images that they name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from omegaconf import DictConfig, OmegaConf

from simco_methods.config.checks import number, optional
from simco_methods.encoder.settings import EncoderSettings
from simco_methods.settings import setting

if TYPE_CHECKING:
    from simco_methods.encoder.encoder import Encoder
    from simco_methods.evaluation.sides import Sides


@dataclass
class EvaluationSettings(EncoderSettings):
    """What an encoder is evaluated on.

    Attributes:
        data: ``data.dataset``, ``data.train_path``, ``data.val_path`` (which images are tested on),
            ``data.labels`` and ``data.val_labels`` (a CSV or TSV of file,label for each of the two
            folders, where there are no class folders), ``data.download``, ``data.on_error``
            (``skip`` reads all images first, and leaves out those that cannot be read),
            ``data.train_images_per_class``, ``data.val_images_per_class``; by default what the
            encoder was trained on. Folders of your own are ``data.dataset=custom``, with a folder
            for each class.
        test_share: the share of each class that is tested on, where class folders have no
            ``data.val_path``; by default what was held out of the encoder's own training by
            ``data.test_share``.
        fraction: share of the labelled training images that are used, by default all: stratified,
            the same images for everybody and in solo-learn (``data.fraction`` there).
    """

    CONFIG: ClassVar[tuple[str, ...]] = ("backbone", "data")

    test_share: float | None = setting(None, optional(number(0, 1, open_low=True)))
    fraction: float | None = setting(None, optional(number(0, 1, open_low=True)))

    def sides(self, encoder: Encoder) -> Sides:
        """The labelled images; see :func:`~simco_methods.evaluation.sides.read_sides`."""
        from simco_methods.evaluation.sides import read_sides

        given = OmegaConf.select(self.config, "data") or OmegaConf.create({})
        trained = encoder.card.settings.get("data") or {}
        data = evaluated_data(OmegaConf.create(trained), given)
        sides = read_sides(data, self.test_share, self.fraction)
        held = trained.get("test_share")
        changed = [
            f"data.{key}={given[key]}"
            for key in ("labels", "train_images_per_class")
            if key in given and given[key] != trained.get(key)
        ]
        if self.test_share not in (None, held):
            changed.append(f"test_share={self.test_share:g}")
        if held is None or data.get("val_path") is not None or not changed:
            return sides
        note = (
            f"the encoder's training held out data.test_share={held:g}: of the same images, "
            f"{', '.join(changed)} tests on some that it was trained on"
        )
        return replace(sides, notes=[*sides.notes, note])


# Keys data.* that say which images, the first of the training images; the others are of a training.
_OF_TRAIN_PATH = (
    "train_path",
    "val_path",
    "labels",
    "val_labels",
    "train_images_per_class",
    "val_images_per_class",
)
_IMAGES = ("dataset", *_OF_TRAIN_PATH, "download", "on_error")


class NoImagesNamed(ValueError):
    """Neither the encoder nor the settings say which images."""


def evaluated_data(trained: DictConfig, given: DictConfig) -> DictConfig:
    """The keys ``data.*`` of an evaluation: those given over those of the training.

    Of another data set, or of other training images, nothing of the training's is kept; of another
    folder to test on, neither its labels nor ``test_share``.

    Raises:
        NoImagesNamed: neither says which images.
        ValueError: keys that an evaluation or the data set does not have.
    """
    from simco_methods.data.datasets import odd_splits

    given = OmegaConf.create(OmegaConf.to_container(given))
    for key in given:
        if key not in _IMAGES:
            settings = ("fraction", "num_workers", "test_share")
            own = f" (the setting {key}= is meant)" * (key in settings)
            raise ValueError(
                f"data.{key} is no key of an evaluation{own}; it has "
                f"{', '.join(f'data.{name}' for name in _IMAGES)}"
            )
    folders = [f"data.{key}={given[key]}" for key in ("train_path", "val_path") if key in given]
    replaced = ("val_labels", "test_share") if "val_path" in given else ()
    known = [key for key in trained if key not in replaced]
    if given.get("dataset", trained.get("dataset")) == trained.get("dataset"):
        keys = ("dataset",)
        if "train_path" not in given:
            if trained.get("no_labels", False) and "labels" not in given:
                raise ValueError(
                    "the encoder was trained on images without labels; name labelled ones by "
                    "data.dataset=custom data.train_path=FOLDER data.val_path=FOLDER, with a "
                    "folder for each class or a file of their labels, data.labels=FILE "
                    "data.val_labels=FILE"
                )
            keys = (*_IMAGES, "test_share")
        kept = OmegaConf.masked_copy(trained, [key for key in keys if key in known])
        given = OmegaConf.merge(kept, given)
    if given.get("dataset") is None:
        if given.get("train_path") is None:
            raise NoImagesNamed(
                "which images? Set data.dataset=NAME (digits, cifar10, custom, ...), and "
                "data.train_path and data.val_path to their folders"
            )
        given.dataset = "custom"
    if given.dataset == "digits" and folders:
        raise ValueError(
            f"{' '.join(folders)}: digits are embedded and in no folder; for images of your own "
            "set data.dataset=custom"
        )
    faults = list(odd_splits(given))
    if faults:
        raise ValueError("\n".join(faults))
    return given
