"""Linear evaluation of a frozen encoder, and what training a classifier on an encoder gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simco_methods.data import ImageSet
from simco_methods.data.loaders import EpochSampler
from simco_methods.encoder import Encoder
from simco_methods.evaluation.accuracy import Scores, scores
from simco_methods.evaluation.linear_heads import Heads
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.linear_training import (
    StateFile,
    Streamed,
    batch_size,
    train_epochs,
)
from simco_methods.evaluation.loading import evaluation_data, extract_features
from simco_methods.evaluation.sides import Sides, stratified
from simco_methods.machine import free_memory


@dataclass
class LinearResult:
    """A classifier, and how good it is at the end of its training.

    Attributes:
        scores: on the test images.
        rows: a mapping for each pair of learning rate and weight decay: ``lr`` (for 256 images),
            ``effective_lr`` (for a batch), ``weight_decay``, ``loss`` (mean of the last epoch),
            ``acc1`` and ``acc5`` on the test images, ``chosen``; with held-out images
            ``held_acc1`` and ``held_loss`` on those, of a classifier that did not see them.
        history: the chosen one's epochs, mappings of the same names.
        head: the chosen classifier, on the CPU.
        backbone: in finetune the network below it, in evaluation mode.
        seconds: of training.
    """

    scores: Scores
    rows: list[dict[str, Any]]
    history: list[dict[str, Any]]
    head: nn.Linear
    backbone: nn.Module | None
    seconds: float

    @property
    def chosen(self) -> dict[str, Any]:
        """The row of the classifier that was chosen."""
        return next(row for row in self.rows if row["chosen"])


def probe(
    encoder: Encoder, sides: Sides, settings: LinearSettings, state: StateFile | None = None
) -> LinearResult:
    """Trains and tests linear classifiers on the features of an encoder, which stays as it is.

    All learning rates are trained in one pass. Among several the best is chosen by images that are
    held out from the training images; what is reported is of a classifier that was trained on all
    of them, after its last epoch.

    Args:
        encoder: on its device.
        sides: to train and to test on.
        settings: of mode=frozen.
        state: where to keep the state of an unfinished training, and to take it up from.

    Raises:
        ValueError: settings that do not go together or do not fit the images or the memory, or no
            learning rate with which the loss stays finite.
    """
    settings = settings.completed(sides.name)
    if settings.mode != "frozen":
        raise ValueError(f"mode={settings.mode}: a probe is of mode=frozen")
    size = batch_size(settings, sides.train)
    held = held_out(sides.train, settings)
    with _evaluating(encoder):
        frozen = _Frozen(encoder, settings)
        batches = (Cached if settings.features == "cached" else FrozenStream)(frozen, sides, size)
        heads = Heads(
            [(lr * size / 256, decay) for lr, decay in settings.grid],
            len(sides.classes),
            settings.optimizer,
            test=frozen.plain(batches.data.val_dataloader(), "test images"),
            held=held,
            held_out=None if held is None else frozen.plain_of(sides.train, held, size),
            label_smoothing=settings.label_smoothing,
            seed=settings.seed,
        )
        history, seconds = train_epochs(heads, batches, settings, len(sides.train) // size, state)
    chosen = choose(history[-1], settings)
    features, labels = heads.test
    head = heads.head(chosen)
    logits = F.linear(features.cpu(), head.weight.detach(), head.bias.detach())
    found = scores(logits, labels.cpu(), sides.classes)
    return LinearResult(found, *tables(history, chosen, settings, size), head, None, seconds)


def held_out(train: ImageSet, settings: LinearSettings) -> Tensor | None:
    """Which of N training images are held out to choose among a grid, (N,) of booleans; None where
    there is nothing to choose.

    Raises:
        ValueError: too few images for the classes.
    """
    if len(settings.grid) == 1:
        return None
    numbers = ImageSet(np.arange(len(train)), train.labels, train.classes)
    try:
        kept = stratified(numbers, 1 - settings.holdout).images
    except ValueError as error:
        raise ValueError(
            f"holdout={settings.holdout:g}, to choose among {len(settings.grid)} classifiers: "
            f"{error}. Set a larger holdout, or one lr and one weight_decay, for which nothing is "
            "held out"
        ) from error
    held = torch.ones(len(train), dtype=torch.bool)
    held[torch.from_numpy(kept)] = False
    return held


def choose(last: dict[str, Any], settings: LinearSettings) -> int:
    """Which pair of the grid is best by an epoch's held-out images, of several alike by their loss.

    Raises:
        ValueError: none whose loss is finite.
    """
    key = "held_acc1" if "held_acc1" in last else "acc1"
    finite = [i for i, value in enumerate(last[key]) if np.isfinite([value, last["acc1"][i]]).all()]
    if not finite:
        tried = ", ".join(f"{lr:g}" for lr in settings.lr)
        raise ValueError(f"lr={tried}: the loss did not stay finite; take a lower one")
    if len(last[key]) == 1:
        return 0
    return max(finite, key=lambda i: (last[key][i], -last["held_loss"][i]))


def tables(
    history: Sequence[dict[str, Any]], chosen: int, settings: LinearSettings, size: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """``rows`` and ``history`` of a :class:`LinearResult`, of what ``train_epochs`` gave."""
    columns = [
        key for key in ("loss", "held_loss", "held_acc1", "acc1", "acc5") if key in history[0]
    ]
    rows = [
        {
            "lr": lr,
            "effective_lr": lr * size / 256,
            "weight_decay": decay,
            **{key: history[-1][key][number] for key in columns},
            "chosen": number == chosen,
        }
        for number, (lr, decay) in enumerate(settings.grid)
    ]
    epochs = [
        {"epoch": entry["epoch"], **{key: entry[key][chosen] for key in columns}}
        for entry in history
    ]
    return rows, epochs


def autocast(device: torch.device, settings: LinearSettings) -> torch.autocast:
    """What a network is forwarded in."""
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16")


@contextmanager
def _evaluating(encoder: Encoder) -> Iterator[None]:
    was_training = encoder.training
    encoder.eval()
    try:
        yield
    finally:
        encoder.train(was_training)


class _Frozen:
    """Features of an encoder in evaluation mode, without gradient, in float32."""

    def __init__(self, encoder: Encoder, settings: LinearSettings):
        self.encoder, self.settings = encoder, settings

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        with autocast(self.encoder.device, self.settings):
            return self.encoder(images).float()

    def plain(self, loader: Iterable, what: str) -> tuple[Tensor, Tensor]:
        """Features and labels of a loader's images, on the device if they fit there."""
        device = self.encoder.device
        with autocast(device, self.settings):
            features, labels = extract_features(self.encoder.backbone, loader, device, what)
        return features.to(device), labels.to(device)

    def plain_of(self, images: ImageSet, rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The same of some images as they are."""
        some = images.select(np.flatnonzero(rows))
        workers = self.settings.num_workers
        data = evaluation_data(self.encoder, some, None, batch_size=size, num_workers=workers)
        return self.plain(data.bank_dataloader(), "held-out images")


class FrozenStream(Streamed):
    """Features of new crops every epoch."""

    def __init__(self, frozen: _Frozen, sides: Sides, size: int):
        super().__init__(frozen.encoder, sides.train, sides.test, frozen.settings, size)
        self.frozen = frozen

    def __call__(self, epoch: int, first: int = 0) -> Iterable[Sequence[Tensor]]:
        for indices, views, labels in super().__call__(epoch, first):
            yield indices, self.frozen(views), labels


class Cached:
    """Features of views that are made once: epoch e has the view e mod ``views`` of each image.

    Order and views are those of :class:`FrozenStream` in the first ``views`` epochs.

    Raises:
        ValueError: more than half of the free memory.
    """

    def __init__(self, frozen: _Frozen, sides: Sides, size: int):
        settings, encoder = frozen.settings, frozen.encoder
        count, views = len(sides.train), settings.views
        needed, free = count * views * encoder.features * 4, free_memory(torch.device("cpu"))
        if needed > free // 2:
            raise ValueError(
                f"features=cached views={views} would take {needed / 2**30:,.1f} GiB, half of the "
                f"free memory is {free / 2**31:,.1f} GiB; take fewer views or features=streamed"
            )
        self.seed, self.size, self.device = settings.seed, size, encoder.device
        # Whole batches, in which every image is.
        padded = np.arange(count + -count % size) % count if settings.augment else np.arange(count)
        stream = Streamed(encoder, sides.train.select(padded), sides.test, settings, size)
        self.data = stream.data
        if settings.augment:
            features = torch.empty(views, len(padded), encoder.features)
            for view in range(views):
                for indices, images, _ in stream(view):
                    features[view, indices] = frozen(images).cpu()
            self.features, labels = features[:, :count], torch.from_numpy(sides.train.labels)
        else:
            features, labels = frozen.plain(self.data.bank_dataloader(), "training images")
            self.features = features[None]
        if self.features.nbytes < free_memory(self.device) // 4:
            self.features = self.features.to(self.device)
        self.labels = labels.to(self.device)

    def __call__(self, epoch: int, first: int = 0) -> Iterable[Sequence[Tensor]]:
        start = epoch, first
        sampler = EpochSampler(self.features.shape[1], self.size, self.seed, start=start)
        features = self.features[epoch % len(self.features)]
        for indices in sampler.indices().split(self.size):
            found = features[indices.to(features.device)].to(self.device)
            yield indices, found, self.labels[indices.to(self.device)]
