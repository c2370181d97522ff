"""What a table is, from ``solo_configs/tables``: rows, columns, scale, the paper's word on it."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import yaml

_FOLDER = importlib.resources.files("solo_configs") / "tables"


@dataclass(frozen=True)
class Entry:
    """A row or a column: what it sets.

    Attributes:
        config: the name below the data set's configs, None where the other side names it.
        dataset: a data set of its own.
        set: overrides, in which ``{word}`` stands for a word of ``words`` and ``{column}``,
            ``{row}`` for the labels.
        words: what the other side's overrides may use.
    """

    config: str | None = None
    dataset: str | None = None
    set: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ordering:
    """What the paper says in words: labels from the best to the worst.

    Attributes:
        says: the sentence.
        along: "columns" (compared within each row) or "rows" (within each column).
        labels: from the highest value to the lowest.
        inside: the rows or columns in which it is said to hold.
        best: ``labels`` is one label, which is above all others.
        but: those among ``inside`` where it is said not to hold.
    """

    says: str
    along: str
    labels: tuple[str, ...]
    inside: tuple[str, ...]
    best: bool = False
    but: tuple[str, ...] = ()


@dataclass(frozen=True)
class Analysis:
    """The analysis that a table shows instead of a summary's figure; see ``simco-analyze``.

    Attributes:
        arguments: of ``simco-analyze``.
        file: of its results, a JSON with ``rows``.
        row, column: the keys of those rows in which a cell's two labels stand, as numbers.
    """

    arguments: tuple[str, ...]
    file: str
    row: str
    column: str


@dataclass(frozen=True)
class Scale:
    """How large a table's runs are; see ``solo_configs/tables/scales``.

    Attributes:
        dataset: of all tables, None for each table's own.
        another: whether ``dataset`` is the user's.
        set: overrides of every cell.
        of: overrides of the cells of a config, by its name.
        compare: whether its figures are put beside the paper's.
        probe_batches: to time before, of 256 images.
    """

    name: str
    dataset: str | None
    another: bool
    set: tuple[str, ...]
    of: Mapping[str, Sequence[str]]
    compare: bool
    probe_batches: int


@dataclass(frozen=True)
class Table:
    """One table or figure at one scale."""

    name: str
    title: str
    scale: Scale
    rows: Mapping[str, Entry]
    columns: Mapping[str, Entry]
    note: str = ""
    dataset: str | None = None
    metric: str = "val_acc1"
    rows_are: str = ""
    columns_are: str = ""
    analysis: Analysis | None = None
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    paper_is: str = ""
    orderings: tuple[Ordering, ...] = ()

    @property
    def like_the_paper(self) -> bool:
        """Whether its figures may be compared with the paper's one by one."""
        return self.scale.name == "paper" and self.scale.dataset is None


# Of a table's file, as they are.
_PLAIN = ("title", "note", "dataset", "metric", "rows_are", "columns_are", "paper", "paper_is")
_OTHERS = ("rows", "columns", "analysis", "orderings", "at")


def table_names() -> list[str]:
    """All tables, as their files are named."""
    return _names(_FOLDER)


def scale_names() -> list[str]:
    """All scales."""
    return _names(_FOLDER / "scales")


def _names(folder: Any) -> list[str]:
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name[-5:] == ".yaml")


def full_name(name: str) -> str:
    """``table5`` to ``table5_batch_size``.

    Raises:
        ValueError: no table, or several, of that beginning.
    """
    names = table_names()
    found = [name] if name in names else [other for other in names if other.startswith(name)]
    if len(found) != 1:
        known = [*names, *(other.split("_")[0] for other in names)]
        near = get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"{name} is none of the tables{hint}: {', '.join(names)}")
    return found[0]


def read_scale(name: str, dataset: str | None = None) -> Scale:
    """A scale by name, with another data set than its own if ``dataset`` names one.

    Raises:
        ValueError: no such scale.
    """
    if name not in scale_names():
        raise ValueError(f"scale {name!r} is none of {', '.join(scale_names())}")
    given = yaml.safe_load((_FOLDER / "scales" / f"{name}.yaml").read_text(encoding="utf-8"))
    return Scale(
        name=name,
        dataset=dataset or given["dataset"],
        another=dataset is not None,
        set=tuple(given["set"]),
        of=given.get("of", {}),
        compare=given.get("compare", True),
        probe_batches=given["probe_batches"],
    )


def read_table(name: str, scale: Scale) -> Table:
    """A table at a scale.

    Raises:
        ValueError: an unknown table, or a definition that does not fit together, by name.
    """
    name = full_name(name)
    given = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    at = given.get("at", {})
    _check(name, set(at), scale_names())
    given |= at.get(scale.name, {})
    _check(name, set(given), (*_PLAIN, *_OTHERS))
    rows, columns = (
        {label.format(dataset=scale.dataset): _entry(entry) for label, entry in given[side].items()}
        for side in ("rows", "columns")
    )
    entries = [*rows.values(), *columns.values()]
    used = " ".join(override for entry in entries for override in entry.set)
    words = {word for entry in entries for word in entry.words}
    _check(
        name, {word for word in words if f"{{{word}}}" not in used}, ("config", "dataset", "set")
    )
    analysis = given.get("analysis")
    if analysis:
        words = {"rows": ",".join(rows), "columns": ",".join(columns)}
        arguments = tuple(argument.format(**words) for argument in analysis["arguments"])
        analysis = Analysis(**{**analysis, "arguments": arguments})
    labels = {"rows": list(rows), "columns": list(columns)}
    orderings = given.get("orderings", []) if scale.compare else []
    if not scale.compare:
        given.pop("paper", None)
    return Table(
        name=name,
        scale=scale,
        rows=rows,
        columns=columns,
        analysis=analysis,
        orderings=tuple(_ordering(name, ordering, labels) for ordering in orderings),
        **{key: given[key] for key in _PLAIN if key in given},
    )


def _check(table: str, names: set[str], allowed: Sequence[str]) -> None:
    unknown = sorted(names - set(allowed))
    if unknown:
        raise ValueError(f"{table}: {', '.join(unknown)} is none of {', '.join(allowed)}")


def _entry(given: Mapping[str, Any]) -> Entry:
    own = {"config", "dataset", "set"}
    words = {key: str(value) for key, value in given.items() if key not in own}
    return Entry(given.get("config"), given.get("dataset"), tuple(given.get("set", ())), words)


def _ordering(table: str, given: Mapping[str, Any], labels: Mapping[str, list[str]]) -> Ordering:
    best = "best" in given
    along = "rows" if best or "rows" in given else "columns"
    across = "columns" if along == "rows" else "rows"
    wanted = [given["best"]] if best else given[along]
    if wanted == "reversed":
        wanted = labels[along][::-1]

    def pick(names: Iterable[str], side: str) -> tuple[str, ...]:
        ends = {"first": labels[side][0], "last": labels[side][-1]}
        found = tuple(ends.get(name, name) for name in names)
        for label in found:
            if label not in labels[side]:
                raise ValueError(f"{table}, ordering {given['says']!r}: {label} is no {side[:-1]}")
        return found

    # Where a scale has other columns than the paper, "but" may name one that is not there.
    but = tuple(name for name in given.get("but", ()) if name in labels[across])
    inside = pick(given.get("in", labels[across]), across)
    return Ordering(given["says"], along, pick(wanted, along), inside, best, but)
