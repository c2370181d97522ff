"""The consistency of a dictionary's keys: with today's encoder, and with one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure

from simco_methods.analysis.finding import Finding, Rows, panels
from simco_methods.analysis.samples import Samples
from simco_methods.analysis.stored import Stored, earlier_keys, possible, queued_keys
from simco_methods.dictionary import ORDERS

TITLE = "Consistency of keys"
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
_DICTIONARY = 256


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
        ("age of the stored key (steps)", "cosine; share of keys"),
        ("keys of the dictionary", "cosine; correlation"),
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


def run(samples: Samples) -> Finding:
    """Of a checkpoint's queue, or of earlier checkpoints of its run.

    Raises:
        ValueError: neither is there, or they do not fit.
    """
    missing = possible(samples)
    if missing:
        raise ValueError(missing)
    find = earlier_keys if samples.settings.earlier else queued_keys
    groups = list(find(samples))
    ages = by_age(groups)
    orders = by_order(groups, same_views=bool(samples.settings.earlier))
    summary = {"source": "checkpoints" if samples.settings.earlier else "queue", "orders": orders}
    figures = {"": draw(ages, orders)}
    return Finding("consistency", TITLE, TEXT, ages, figures, summary)
