"""Stored keys beside what today's encoder gives for the same views: where they are found."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simco_methods.analysis.encoder import Network, load_checkpoint
from simco_methods.analysis.samples import KEY, Samples
from simco_methods.data.loaders import EpochSampler
from simco_methods.files import user_path

AGES = 16  # that are looked at
_COMPARED = 1024  # views that earlier checkpoints are asked about


@dataclass
class Stored:
    """Keys of one age, and what today's encoder gives for the same views.

    Attributes:
        age: steps since they were made.
        stored, today: (N, D) L2-normalised, row by row the same view.
    """

    age: int
    stored: Tensor
    today: Tensor


def spaced(entries: Sequence[Any]) -> list[Any]:
    """At most :data:`AGES` of the entries, evenly spaced, with the first and the last."""
    picks = torch.linspace(0, len(entries) - 1, min(AGES, len(entries))).round().long().unique()
    return [entries[pick] for pick in picks.tolist()]


def possible(samples: Samples) -> str | None:
    """None if there are stored keys to compare with, else what is missing."""
    if samples.settings.earlier:
        return None
    checkpoint = samples.checkpoint
    what = "has no key queue"
    if checkpoint.queues:
        what = "was not written by simco-pretrain"
        if checkpoint.resumable:
            if samples.settings.split != "train":
                return "the queue's keys are of training images: set split=train"
            queue = checkpoint.queues[0]
            if len(queue.written[queue.filled].unique()) != 1:
                return None
            what = "has a queue of no more than one batch"
    others = sorted(p.name for p in checkpoint.path.parent.glob("*.ckpt") if p != checkpoint.path)
    there = f" (there are {', '.join(others[:3])}{' ...' if len(others) > 3 else ''})"
    return (
        f"consistency needs stored keys, and {checkpoint.path.name} {what}: name earlier "
        f"checkpoints of the same run, earlier=[PATH,...]{there if others else ''}"
    )


def earlier_keys(samples: Samples) -> Iterator[Stored]:
    """The anchors' positives, as earlier checkpoints give them and as this one does."""
    checkpoint = samples.checkpoint
    for name in samples.settings.earlier:
        other = load_checkpoint(user_path(name), samples.settings.config, samples.settings.trusted)
        age = checkpoint.step - other.step
        if age <= 0:
            raise ValueError(
                f"earlier={name} is of step {other.step}, not before step {checkpoint.step} of "
                f"{checkpoint.path}"
            )
        items = samples.pairs.items[:_COMPARED]
        today = samples.pairs.key[: len(items)]
        stored = samples.embed(other.momentum, items, KEY)[1]
        if stored.shape != today.shape:
            raise ValueError(
                f"earlier={name} has embeddings of {stored.shape[1]} dimensions, "
                f"{checkpoint.path} of {today.shape[1]}: not of one run"
            )
        yield Stored(age, stored, today)


def queued_keys(samples: Samples) -> Iterator[Stored]:
    """Batches of the queue, made anew by today's encoder from the same views in the same batches.

    The order of images and their views are functions of seed, epoch and image: each key's image is
    known. Batch statistics are those of its batch, as when it was made.
    """
    checkpoint, cfg = samples.checkpoint, samples.checkpoint.cfg
    queue = checkpoint.queues[0]
    enqueues = int(queue.step)
    oldest_first = queue.slots(len(queue), "earliest")
    numbers, counts = queue.written[queue.filled].unique(return_counts=True)
    if not len(numbers):
        raise ValueError(f"the queue in {checkpoint.path} is empty: no key has reached it")
    rows = int(counts.max())
    complete = numbers[counts == rows].tolist()
    if not checkpoint.epoch or enqueues % checkpoint.epoch:
        raise ValueError(f"{checkpoint.path} was not saved at the end of an epoch")
    per_epoch = enqueues // checkpoint.epoch
    if per_epoch > len(samples.images) // rows:
        raise ValueError(
            f"the data has {len(samples.images)} images, the run saw {per_epoch} batches of {rows} "
            "an epoch: these are not the images that it was trained on"
        )
    # The queue of the first side holds the keys of view 2, symmetric or not.
    network = _with_batch_statistics(checkpoint.momentum).to(samples.device)
    shares: list[int] = sorted({rows, min(rows, cfg.optimizer.batch_size)})
    for number in reversed(spaced(complete)):
        epoch, place = divmod(number, per_epoch)
        sampler = EpochSampler(len(samples.images), rows, cfg.seed, start=(epoch, 0))
        items = list(sampler)[place * rows : (place + 1) * rows]
        (images,) = samples.views(items, KEY, cfg.seed, batch_size=rows)
        slots = oldest_first[queue.written[oldest_first] == number]
        stored = queue.keys[slots].to(samples.device)
        made = {share: _made_anew(network, images.to(samples.device), share) for share in shares}
        if len(shares) > 1:
            # Of several processes: whether batch norm was synchronised, the newest keys tell.
            shares = [max(shares, key=lambda s, m=made, k=stored: float((m[s] * k).sum()))]
        yield Stored(enqueues - 1 - number, stored, made[shares[0]])


@torch.no_grad()
def _made_anew(network: Network, images: Tensor, share: int) -> Tensor:
    """Keys of a batch whose statistics were taken over ``share`` rows at a time."""
    return torch.cat([network(part)[1] for part in images.split(share)])


def _with_batch_statistics(network: Network) -> Network:
    network = copy.deepcopy(network)
    for module in network.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.train()
    return network
