"""Linear evaluation of a frozen encoder, and what training a classifier on an encoder gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simco_methods.data import ImageSet
from simco_methods.data.splits import stratified
from simco_methods.encoder import Encoder
from simco_methods.evaluation.accuracy import Scores, scores
from simco_methods.evaluation.linear_features import Cached, Frozen, FrozenStream, PlainFeatures
from simco_methods.evaluation.linear_heads import Heads
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.linear_training import StateFile, batch_size, train_epochs
from simco_methods.evaluation.sides import Sides


@dataclass
class LinearResult:
    """A classifier, and how good it is at the end of its training.

    Attributes:
        scores: on the test images.
        rows: a mapping for each pair of learning rate and weight decay: ``lr`` (for 256 images),
            ``effective_lr`` (for a batch), ``weight_decay``, ``loss`` (mean of the last epoch),
            ``acc1`` and, of six classes and more, ``acc5`` on the test images, ``chosen``; with
            held-out images ``held_acc1`` and ``held_loss`` on those, of a classifier that did not
            see them.
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
    encoder: Encoder,
    sides: Sides,
    settings: LinearSettings,
    state: StateFile | None = None,
    known: PlainFeatures | None = None,
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
        known: features of the images without augmentation, if they have been made.

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
        frozen = Frozen(encoder, settings, known)
        batches = (Cached if settings.features == "cached" else FrozenStream)(frozen, sides, size)
        heads = Heads(
            [(lr * size / 256, decay) for lr, decay in settings.grid],
            len(sides.classes),
            settings.optimizer,
            test=frozen.test(batches.data),
            held=held,
            held_out=None if held is None else frozen.held_out(sides.train, held, size),
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

    A stratified share; of so few that it would lack classes on a side, the share of each class, at
    least one image of each class that has two.

    Raises:
        ValueError: one image of each class.
    """
    if len(settings.grid) == 1:
        return None
    numbers = ImageSet(np.arange(len(train)), train.labels, train.classes)
    try:
        kept = stratified(numbers, 1 - settings.holdout).images
    except ValueError:
        kept = np.concatenate(
            [
                rows[: max(1, min(len(rows) - 1, round((1 - settings.holdout) * len(rows))))]
                for label in np.unique(train.labels)
                for rows in [np.flatnonzero(train.labels == label)]
            ]
        )
    held = torch.ones(len(train), dtype=torch.bool)
    held[torch.from_numpy(kept)] = False
    if not held.any():
        raise ValueError(
            f"there is one image of each class to train on, and {len(settings.grid)} classifiers "
            "to choose from: give one lr and one weight_decay"
        )
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
        key
        for key in ("loss", "held_loss", "held_acc1", "acc1", "acc5")
        if all(key in entry for entry in history)
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


@contextmanager
def _evaluating(encoder: Encoder) -> Iterator[None]:
    was_training = encoder.training
    encoder.eval()
    try:
        yield
    finally:
        encoder.train(was_training)
