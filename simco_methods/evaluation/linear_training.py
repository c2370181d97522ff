"""Epochs over an evaluation's training images, which can be interrupted and taken up again."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from simco_methods.data import ImageSet, PretrainData
from simco_methods.encoder import Encoder
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.loading import evaluation_data
from simco_methods.files import lock, whole
from simco_methods.host.builtin.optimizers import OPTIMIZERS
from simco_methods.host.schedule import warmup_cosine
from simco_methods.progress import Progress

# (epoch, batches of it that are done) to (indices, inputs, labels) of its others.
Batches = Callable[[int, int], Iterable[Sequence[Tensor]]]

SAVE_SECONDS = 10.0  # of work that an interruption may cost
_SAVING_SHARE = 0.05  # of the time that may go into saving
_OPTIONS = {
    "sgd": {"momentum": 0.9},
    "lars": {"momentum": 0.9, "exclude_bias_n_norm": True},
    "adamw": {},
}


class Learner(Protocol):
    """What is trained."""

    optimizer: Optimizer

    def step(self, number: int, indices: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The ``number``-th optimiser step, from 0; returns some losses, detached."""

    def evaluate(self) -> dict[str, list[float]]:
        """What is measured after an epoch."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class StateFile:
    """How far an unfinished training has come, as a file that is written whole or not at all.

    Args:
        path: of the file; its folder is made when the training begins, and held by this process.
        identity: of the training.
    """

    def __init__(self, path: Path, identity: dict[str, Any]):
        self.path, self.identity = path, identity
        self._lock: int | None = None
        self._due = 0.0

    def read(self) -> dict[str, Any] | None:
        """What was saved last, None for nothing.

        Raises:
            ValueError: something that cannot be read.
        """
        if not self.path.is_file():
            return None
        try:
            return torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # whatever a torn file makes of torch
            raise ValueError(f"{self.path} cannot be read; remove it to start anew") from error

    def begin(self) -> dict[str, Any] | None:
        """Takes the folder; returns as :meth:`read`.

        Raises:
            ValueError: another process has it.
        """
        self._lock = lock(self.path.parent / ".lock")
        if self._lock is None:
            raise ValueError(f"another process is at work in {self.path.parent}; wait for it")
        for leftover in self.path.parent.glob(f".{self.path.name}.*.part"):  # of a kill
            leftover.unlink()
        self._due = time.monotonic() + SAVE_SECONDS
        return self.read()

    def save_if_due(self, state: Callable[[], dict[str, Any]]) -> None:
        """Writes ``state()``, unless that was done just now."""
        started = time.monotonic()
        if started < self._due:
            return
        content = io.BytesIO()  # torch does not say that a disk is full
        torch.save({"identity": self.identity, **state()}, content)
        with whole(self.path) as part:
            part.write_bytes(content.getbuffer())
        now = time.monotonic()
        self._due = now + max(SAVE_SECONDS, (now - started) / _SAVING_SHARE)

    def leave(self) -> None:
        """Gives the folder back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class Streamed:
    """:data:`Batches` of one new crop of each image an epoch, on the encoder's device.

    Args:
        encoder: for its preprocessing and device.
        train, test: the images.
        settings: completed.
        batch_size: of training.
    """

    def __init__(
        self,
        encoder: Encoder,
        train: ImageSet,
        test: ImageSet,
        settings: LinearSettings,
        batch_size: int,
    ):
        self.data: PretrainData = evaluation_data(
            encoder,
            train,
            test,
            batch_size=batch_size,
            num_workers=settings.num_workers,
            seed=settings.seed,
            crop_min_scale=settings.crop_min_scale,
            flip=settings.flip,
        )
        self.device = encoder.device
        self._loader: Any = None

    def __call__(self, epoch: int, first: int = 0) -> Iterable[Sequence[Tensor]]:
        if self._loader is None:
            self.data.load_state_dict({"next_epoch": epoch, "next_batch": first})
            self._loader = self.data.train_dataloader()
        self._loader.sampler.set_epoch(epoch)
        for indices, [view], labels in self._loader:
            yield (
                indices,
                view.to(self.device, non_blocking=True),
                labels.to(self.device, non_blocking=True),
            )


def batch_size(settings: LinearSettings, train: ImageSet) -> int:
    """Images in a batch: as set, or as many as there are; an even number where they are mixed."""
    size = min(settings.batch_size, len(train))
    return size - size % 2 if settings.mixup or settings.cutmix else size


def make_optimizer(name: str, groups: list[dict[str, Any]]) -> Optimizer:
    """An optimiser of groups with ``params``, ``lr`` (at its highest) and ``weight_decay``."""
    for group in groups:
        group["base_lr"] = group["lr"]
    return OPTIMIZERS[name](groups, lr=groups[0]["lr"], weight_decay=0.0, **_OPTIONS[name])


def train_epochs(
    learner: Learner,
    batches: Batches,
    settings: LinearSettings,
    steps: int,
    state: StateFile | None,
) -> tuple[list[dict[str, Any]], float]:
    """Trains through all epochs, from where ``state`` left it.

    Args:
        learner: what is trained.
        batches: to train on.
        settings: completed.
        steps: batches of an epoch.
        state: where the state is kept; None for nowhere.

    Returns:
        A mapping an epoch of ``epoch``, ``loss`` (means over it) and what
        :meth:`Learner.evaluate` gave, and the seconds that it took.
    """
    found = state.begin() if state is not None else None
    epoch, first, history, spent = 0, 0, [], 0.0
    total: Tensor | None = None  # left on the device, which nothing here waits for
    if found is not None:
        learner.load_state_dict(found["learner"])
        (epoch, first), history, spent = found["position"], found["history"], found["seconds"]
        total = found["losses"]
    started = time.monotonic() - spent

    def now() -> dict[str, Any]:
        return {
            "learner": learner.state_dict(),
            "position": (epoch, first),
            "history": history,
            "losses": None if total is None else total.cpu(),
            "seconds": time.monotonic() - started,
        }

    title = "training the classifier" if settings.mode == "frozen" else "finetuning"
    total_steps, done = settings.epochs * steps, epoch * steps + first
    with Progress(title, total_steps, "batches", done) as progress:
        while epoch < settings.epochs:
            for batch in batches(epoch, first):
                number = epoch * steps + first
                _set_rates(learner.optimizer, number, settings, steps)
                losses = learner.step(number, *batch)
                total = losses if total is None else total.to(losses.device) + losses
                first += 1
                progress.update()
                if state is not None and first < steps:
                    state.save_if_due(now)
            mean = (total / steps).tolist()
            history.append({"epoch": epoch + 1, "loss": mean, **learner.evaluate()})
            epoch, first, total = epoch + 1, 0, None
            if state is not None:
                state.save_if_due(now)
    return history, time.monotonic() - started


def _set_rates(optimizer: Optimizer, step: int, settings: LinearSettings, steps: int) -> None:
    warmup = round(settings.warmup_epochs * steps)
    for group in optimizer.param_groups:
        group["lr"] = warmup_cosine(
            group["base_lr"],
            step,
            warmup_steps=warmup,
            total_steps=settings.epochs * steps,
            # Not from 0, which would be a step that changes nothing.
            warmup_start_lr=group["base_lr"] / max(1, warmup),
        )
