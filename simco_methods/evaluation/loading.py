"""Images on their way through an encoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from simco_methods.data import ImageSet, PretrainData
from simco_methods.encoder import Encoder
from simco_methods.evaluation.accuracy import equal_features_note
from simco_methods.machine import free_memory
from simco_methods.progress import say, track


def evaluation_data(
    encoder: Encoder,
    train: ImageSet,
    test: ImageSet | None,
    *,
    batch_size: int,
    num_workers: int,
    seed: int = 0,
    crop_min_scale: float = 0.08,
    flip: float = 0.5,
) -> PretrainData:
    """The loaders of an evaluation, whose images are preprocessed as the encoder's were.

    Its ``train_dataloader()`` gives ``(indices, [view], labels)``, one random crop, resized and
    flipped, of each training image, other ones each epoch (``loader.sampler.set_epoch(number)``);
    ``bank_dataloader()`` and ``val_dataloader()`` give ``(images, labels)`` of the training and the
    test images as they are, in order. They lie on the encoder's device if they fit there, else
    workers read them.

    Args:
        encoder: on its device.
        train, test: the images.
        batch_size: images at a time, at most as many as there are.
        num_workers: processes, where they are read by workers.
        seed: of crops, flips and order.
        crop_min_scale: smallest share of an image that a crop takes.
        flip: probability of a mirrored view.
    """
    seen = encoder.card.preprocessing
    view = {
        "crop_size": seen.size,
        "resize": seen.resize,
        "mean": list(seen.mean),
        "std": list(seen.std),
        "num_crops": 1,
        "rrc": {"enabled": True, "crop_min_scale": crop_min_scale, "crop_max_scale": 1.0},
        "horizontal_flip": {"prob": flip},
    }
    cfg = {
        # To the encoder they are custom images: of its own mean and size, not of the data set's.
        "data": {"dataset": "custom", "loader": "auto", "num_workers": num_workers},
        "augmentations": [view],
        "optimizer": {"batch_size": min(batch_size, len(train))},
        "seed": seed,
    }
    return PretrainData(OmegaConf.create(cfg), train, test, encoder.device)


@torch.no_grad()
def extract_features(
    backbone: nn.Module, loader: Iterable, device: torch.device, what: str = "images"
) -> tuple[Tensor, Tensor]:
    """Features (N, D) in float32 and labels (N,) of a loader of ``(images, labels)``, on the CPU.

    Args:
        backbone: on the device, in evaluation mode.
        loader: of some batches.
        device: where the images go.
        what: is on its way, for the progress bar.
    """
    (features,), labels = _features_of_each([backbone], loader, device, what)
    return features, labels


@torch.no_grad()
def _features_of_each(
    backbones: Sequence[nn.Module], loader: Iterable, device: torch.device, what: str
) -> tuple[list[Tensor], Tensor]:
    """Features of some backbones, for which each image is read once, and labels."""
    features: list[list[Tensor]] = [[] for _ in backbones]
    labels = []
    dtypes = [next(backbone.parameters()).dtype for backbone in backbones]
    for images, targets in track(loader, f"features of the {what}", unit="batches"):
        images = images.to(device)
        for found, backbone, dtype in zip(features, backbones, dtypes, strict=True):
            found.append(backbone(images.to(dtype)).float().cpu())
        labels.append(targets.cpu())
    # One after the other, each in place of its parts.
    return [torch.cat(features.pop(0)) for _ in backbones], torch.cat(labels)


def check_finite(*features: Tensor) -> None:
    """Raises ``ValueError`` for features that hold NaN or infinity."""
    if not all(part.isfinite().all() for part in features):
        raise ValueError("the encoder's features of some images are not finite")


def bank_and_query_features(
    backbones: Sequence[nn.Module],
    bank: Iterable,
    queries: Iterable | None,
    device: torch.device,
) -> Iterator[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """:func:`extract_features` of both sets of a kNN for each backbone, where they are searched
    fastest: on the device if a quarter of its free memory holds them. Each image is read once. A
    first backbone that makes all bank images equal is noted.

    Args:
        backbones: each as of :func:`extract_features`.
        bank, queries: loaders; without queries those of the bank are classified.
        device: see :func:`extract_features`.
    """
    sets = {"bank images": bank, "query images": queries}
    read = [
        _features_of_each(backbones, loader, device, name)
        for name, loader in sets.items()
        if loader is not None
    ]
    for note in equal_features_note(read[0][0][0]):
        say(f"note: {note}")
    for _ in backbones:
        found = [(features.pop(0), labels) for features, labels in read]
        if sum(features.nbytes for features, _ in found) < free_memory(device) // 4:
            found = [(features.to(device), labels.to(device)) for features, labels in found]
        yield found[0], found[-1]
