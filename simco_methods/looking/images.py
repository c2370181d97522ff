"""The images that are shown, and their features."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from simco_methods.data import ImageSet, folder_images, has_validation, load_images
from simco_methods.data.decode import printable
from simco_methods.data.images import UNLABELLED
from simco_methods.data.readable import leave_out_unreadable, left_out_line
from simco_methods.encoder import Encoder
from simco_methods.evaluation.loading import check_finite, evaluation_data, extract_features
from simco_methods.evaluation.settings import evaluated_data
from simco_methods.files import user_path
from simco_methods.looking.settings import VisualizeSettings


@dataclass
class Shown:
    """Some of the images of a data set or folder.

    Attributes:
        images: themselves.
        names: of each, as a person is shown it.
        what: where they are from, in words.
        encoder: that makes their features.
        settings: of the command.
    """

    images: ImageSet
    names: Sequence[str]
    what: str
    encoder: Encoder
    settings: VisualizeSettings

    def __len__(self) -> int:
        return len(self.images)

    @functools.cached_property
    def features(self) -> Tensor:
        """(N, F), on the CPU."""
        settings = self.settings
        data = evaluation_data(
            self.encoder,
            self.images,
            self.images,
            batch_size=settings.batch_size,
            num_workers=settings.num_workers,
        )
        loader, device = data.val_dataloader(), self.encoder.device
        found = extract_features(self.encoder.backbone, loader, device)[0]
        check_finite(found)
        return found

    def class_of(self, row: int) -> str | None:
        """Name of an image's class; None if it has none."""
        label = self.images.labels[row]
        return None if label == UNLABELLED else printable(self.images.classes[label])

    def examples(self) -> list[int]:
        """Rows of some images, of several classes where there are."""
        count = min(self.settings.examples, len(self))
        return spread(self.images.labels, count, self.settings.seed + 1).tolist()


def shown_images(encoder: Encoder, settings: VisualizeSettings) -> Shown:
    """The images that the settings ask for, or of what the encoder was trained on.

    Raises:
        FileNotFoundError, ValueError: images that are not there, or that nobody names.
        UnreadableImage: one of them.
    """
    if settings.folder is not None:
        images, what = any_images(user_path(settings.folder)), settings.folder
    else:
        data = _data(encoder, settings)
        split = settings.split or ("val" if has_validation(data) else "train")
        if split == "val" and not has_validation(data):
            raise ValueError("split=val: there is no data.val_path")
        images = load_images(data, split)
        what = f"{data.dataset}, {'test' if split == 'val' else 'training'} images"
    for note in images.notes:
        print(f"note: {note}", flush=True)
    total = len(images)
    rows = spread(images.labels, min(settings.images, total), settings.seed)
    chosen = images.select(rows)
    if isinstance(images.images, np.ndarray):
        names = [f"image {row}" for row in rows]
    else:
        names = [printable(name) for name in chosen.names()]
    what = f"{what}, {len(rows):,} of {total:,}"
    if settings.on_error == "skip":
        kept, left_out = leave_out_unreadable(chosen)
        if left_out:
            print(left_out_line(left_out, len(chosen)), flush=True)
            names = [printable(name) for name in chosen.names() if name not in left_out]
            what += f", {len(left_out)} of them cannot be read"
        chosen = kept
    return Shown(chosen, names, what, encoder, settings)


def any_images(folder: str) -> ImageSet:
    """The images of a folder: of classes if all lie in subfolders, else without labels.

    Raises:
        FileNotFoundError: no folder, or no image in it.
    """
    try:
        return folder_images(folder)
    except (FileNotFoundError, ValueError):
        return folder_images(folder, labelled=False)


def spread(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Rows of ``count`` images, sorted: of each class its share, drawn by the seed."""
    order = np.random.default_rng(seed).permutation(len(labels))
    place = np.empty(len(labels))
    for label in np.unique(labels):
        rows = order[labels[order] == label]
        place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.sort(order[np.argsort(place[order], kind="stable")[:count]])


def _data(encoder: Encoder, settings: VisualizeSettings) -> DictConfig:
    given = OmegaConf.select(settings.config, "data") or OmegaConf.create({})
    if "on_error" in given:
        raise ValueError(
            "data.on_error is no key of simco-visualize: the setting on_error= is meant"
        )
    trained = OmegaConf.create(encoder.card.settings.get("data") or {})
    if trained.get("no_labels", False) and not given:
        return trained
    return evaluated_data(trained, given)
