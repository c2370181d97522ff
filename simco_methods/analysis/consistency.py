"""The consistency of a dictionary's keys: with today's encoder, and with one another."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from simco_methods.analysis.encoder import Network, load_checkpoint
from simco_methods.analysis.finding import Finding, Rows, panels
from simco_methods.analysis.samples import KEY, Samples
from simco_methods.data.loaders import EpochSampler
from simco_methods.dictionary import ORDERS

MEANING = (
    "Positive-negative consistency: the cosine of stored keys to what today's encoder gives for "
    "the same views, against the keys' age."
)
MEANING_ORDERS = (
    "Negative-negative consistency: whether keys that lie in one dictionary compare with one "
    "another as today's would (correlation of their pairwise cosines), for a dictionary of the "
    "newest keys, of the oldest, and of a random choice of ages."
)
TEXT = (
    f"Left. {MEANING} Also how often the nearest of today's keys is a stored key's own; dotted, "
    f"the cosine between keys of different images. Right. {MEANING_ORDERS}"
)
AGES = 16  # that are looked at
_DICTIONARY = 256


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


def by_age(groups: Sequence[Stored]) -> list[dict[str, Any]]:
    """A row an age: ``cosine`` and ``cosine_std`` of stored to today's keys, ``different`` (today's
    keys of different views), ``found`` (share whose nearest of today's is their own)."""
    rows = []
    for group in sorted(groups, key=lambda g: g.age):
        cosine = group.stored @ group.today.T
        own = torch.arange(len(cosine), device=cosine.device)
        among = group.today @ group.today.T
        count = len(among)
        different = (among.sum() - among.diagonal().sum()) / (count * (count - 1))
        rows.append(
            {
                "age": group.age,
                "keys": count,
                "cosine": cosine.diagonal().mean().item(),
                "cosine_std": cosine.diagonal().std().item(),
                "different": different.item(),
                "found": (cosine.argmax(dim=1) == own).double().mean().item(),
            }
        )
    return rows


def by_order(
    groups: Sequence[Stored], size: int = _DICTIONARY, same_views: bool = False
) -> list[dict[str, Any]]:
    """A row for a dictionary of ``size`` keys of each order.

    With ``same_views`` row i is of one view in every group: a dictionary then takes each view once.

    ``age`` and ``age_std`` of its keys, ``cosine`` to today's, and ``agreement``: the correlation,
    over pairs of its keys, of their cosine as stored with their cosine as today's.
    """
    groups = sorted(groups, key=lambda g: g.age)
    ages = torch.cat([torch.full((len(g.stored),), float(g.age)) for g in groups])
    stored = torch.cat([g.stored for g in groups])
    today = torch.cat([g.today for g in groups])
    generator = torch.Generator().manual_seed(0)
    if same_views:
        views = len(groups[0].stored)
        size = min(size, views)
        drawn = torch.randint(len(groups), (size,), generator=generator)
        mixed = drawn * views + torch.arange(size)
    else:
        size = min(size, len(ages))
        mixed = torch.randperm(len(ages), generator=generator)[:size]
    chosen = {
        "recent": torch.arange(size),
        "earliest": torch.arange(len(ages) - size, len(ages)),
        "random": mixed,
    }
    rows = []
    for order in ORDERS:
        picked = chosen[order].to(stored.device)
        above = torch.ones(size, size, dtype=torch.bool, device=stored.device).triu(1)
        pairs = [(keys[picked] @ keys[picked].T)[above] for keys in (stored, today)]
        own = ages[chosen[order]]
        rows.append(
            {
                "order": order,
                "keys": size,
                "age": own.mean().item(),
                "age_std": own.std(correction=0).item(),
                "cosine": (stored[picked] * today[picked]).sum(dim=1).mean().item(),
                "agreement": torch.corrcoef(torch.stack(pairs).double())[0, 1].item(),
            }
        )
    return rows


def draw(ages: Rows, orders: Rows) -> Figure:
    """Cosine and recognition against age; the three kinds of dictionaries as bars."""
    figure, (left, right) = panels(
        ("age of the stored key (steps)", "cosine to today's key; share that find their own"),
        ("keys of the dictionary", ""),
    )
    x = [row["age"] for row in ages]
    left.errorbar(
        x,
        [row["cosine"] for row in ages],
        [row["cosine_std"] for row in ages],
        marker="o",
        markersize=3,
        capsize=2,
        label="cosine to today's key",
    )
    left.plot(x, [row["found"] for row in ages], marker="s", markersize=3, label="find their own")
    left.plot(
        x, [row["different"] for row in ages], ":", color="grey", label="cosine of different images"
    )
    left.set_ylim(top=1.02)
    left.legend(fontsize="small")
    for number, (name, label) in enumerate(
        (("cosine", "cosine to today's keys"), ("agreement", "agreement with one another"))
    ):
        places = [place + 0.4 * number - 0.2 for place in range(len(orders))]
        bars = right.bar(places, [row[name] for row in orders], 0.36, label=label)
        right.bar_label(bars, fmt="%.2f", fontsize="small")
    right.set_xticks(
        range(len(orders)),
        [f"{row['order']}\nage {row['age']:.0f} ± {row['age_std']:.0f}" for row in orders],
    )
    right.set_ylim(top=1.25)
    right.legend(fontsize="small", loc="upper center", ncols=2)
    return figure


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


def run(samples: Samples) -> Finding:
    """Of a checkpoint's queue, or of earlier checkpoints of its run.

    Raises:
        ValueError: neither is there, or they do not fit.
    """
    missing = possible(samples)
    if missing:
        raise ValueError(missing)
    groups = list(_earlier(samples) if samples.settings.earlier else _queued(samples))
    ages = by_age(groups)
    orders = by_order(groups, same_views=bool(samples.settings.earlier))
    summary = {"source": "checkpoints" if samples.settings.earlier else "queue", "orders": orders}
    figures = {"": draw(ages, orders)}
    return Finding("consistency", "Consistency of keys", TEXT, ages, figures, summary)


def _earlier(samples: Samples) -> Iterator[Stored]:
    """The anchors' positives, as earlier checkpoints give them and as this one does."""
    checkpoint = samples.checkpoint
    for name in samples.settings.earlier:
        other = load_checkpoint(Path(name), samples.settings.config, samples.settings.trusted)
        age = checkpoint.step - other.step
        if age <= 0:
            raise ValueError(
                f"earlier={name} is of step {other.step}, not before step {checkpoint.step} of "
                f"{checkpoint.path}"
            )
        items = samples.pairs.items[: 4 * _DICTIONARY]
        today = samples.pairs.key[: len(items)]
        stored = samples.embed(other.momentum, items, KEY)[1]
        if stored.shape != today.shape:
            raise ValueError(
                f"earlier={name} has embeddings of {stored.shape[1]} dimensions, "
                f"{checkpoint.path} of {today.shape[1]}: not of one run"
            )
        yield Stored(age, stored, today)


def _queued(samples: Samples) -> Iterator[Stored]:
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
        sampler = EpochSampler(len(samples.images), rows, cfg.seed, first_epoch=epoch)
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
