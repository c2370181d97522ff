"""From a table to its cells, and which of them it was last asked for."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simco_methods.config.parse import complete, digest, fingerprint
from simco_methods.config.spelling import runs_on_cpu, spell_devices
from simco_methods.files import write_json
from simco_methods.overrides import hydra_override
from simco_methods.tables.cells import Cell, Run
from simco_methods.tables.definition import Entry, Table, read_scale, read_table

# Of a folder of all data sets, what holds each; the others are in the folder itself.
_SUBFOLDERS = {"imagenet100": ("imagenet100/train", "imagenet100/val"), "custom": ("train", "val")}
# Keys of every run that are not to be set as overrides, and what sets them.
_BY_OPTION = {
    "seed": "SEEDS (--seeds)",
    "output_dir": "OUT (--out)",
    "data.dataset": "DATASET (--dataset)",
    "data.train_path": "DATA (--data)",
    "data.val_path": "DATA (--data)",
}


@dataclass(frozen=True)
class Settings:
    """What is the same for all cells.

    Attributes:
        seeds: a run of each cell for each.
        data: the folder of the data sets.
        out: the folder of all results; finished runs in it are found by every table.
        overrides: of the user, over those of the table.
        implied: overrides that are no part of what is asked for.
    """

    seeds: tuple[int, ...]
    data: Path
    out: Path
    overrides: tuple[str, ...] = ()
    implied: tuple[str, ...] = ()


def expand(table: Table, settings: Settings) -> list[Cell]:
    """The cells of a table, a seed after the other, each row by row.

    Raises:
        ValueError: overrides that do not fit, with the cell that they do not fit.
    """
    cells = []
    said = io.StringIO()
    places = itertools.product(settings.seeds, table.rows.items(), table.columns.items())
    for seed, row, column in places:
        try:
            with contextlib.redirect_stdout(said):
                run = _run(table, row, column, seed, settings)
        except (ValueError, HydraException, OmegaConfBaseException) as error:
            raise ValueError(f"{table.name}, {row[0]}, {column[0]}: {error}") from error
        cells.append(Cell(table.name, row[0], column[0], seed, run, table.analysis))
    for line in dict.fromkeys(said.getvalue().splitlines()):
        print(line)
    return cells


def _run(
    table: Table, row: tuple[str, Entry], column: tuple[str, Entry], seed: int, settings: Settings
) -> Run:
    dataset = table.scale.dataset or column[1].dataset or row[1].dataset or table.dataset
    config = column[1].config or row[1].config
    words = {**row[1].words, **column[1].words, "row": row[0], "column": column[0]}
    own = [text.format(**words) for entry in (row[1], column[1]) for text in entry.set]
    _refuse_what_is_compared(settings.overrides, own)
    overrides = [
        *table.scale.set,
        *table.scale.of.get(config, ()),
        *own,
        f"seed={seed}",
        *settings.implied,
    ]
    if table.scale.another and column[1].dataset:
        raise ValueError(f"the columns are data sets, DATASET={dataset} (--dataset) fits none")
    leaf = dataset
    if dataset == "custom":
        leaf = "cifar10"
        small = table.scale.name != "paper"
        overrides = ["dataset=custom", *(["augmentations=crop32"] * small), *overrides]
        overrides += [f"data.{split}_images_per_class=null" for split in ("train", "val")]
    given = [hydra_override(text) for text in (*overrides, *settings.overrides)]
    cfg = _composed(f"{leaf}/{config}", given)
    for split, path in _paths(dataset, settings.data).items():
        OmegaConf.update(cfg, f"data.{split}_path", str(path))
    _share_the_batch(cfg)
    name = fingerprint(complete(cfg))
    folder = settings.out / "cells" / name
    cfg.output_dir = str(folder)
    return Run(name, folder, cfg)


def _refuse_what_is_compared(overrides: Sequence[str], own: Sequence[str]) -> None:
    """An override of what makes a table's places differ would make them one run."""
    keys = {**_BY_OPTION, **{text.split("=")[0]: "the table" for text in own}}
    for override in overrides:
        key = override.split("=")[0].lstrip("+~")
        if key in keys:
            raise ValueError(f"{override}: {key} is set by {keys[key]}")


def _composed(name: str, overrides: Sequence[str]) -> DictConfig:
    """What Hydra composes, with each leaf and its groups read once for all cells."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    groups = tuple(o.input_line for o in parsed if not o.is_force_add())
    cfg = _leaf(name, groups).copy()
    for override in parsed:
        if override.is_force_add():
            key, value = override.key_or_group, override.value()
            OmegaConf.update(cfg, key, value, merge=True, force_add=True)
    return cfg


@functools.lru_cache
def _leaf(name: str, overrides: tuple[str, ...]) -> DictConfig:
    with initialize_config_module("solo_configs", version_base="1.3"):
        cfg = compose(name, overrides=list(overrides))
    OmegaConf.set_struct(cfg, False)
    return cfg


def _paths(dataset: str, folder: Path) -> dict[str, Path]:
    if dataset == "digits":
        return {}
    folder = folder.resolve()  # the same run from wherever the script is called
    train, val = (folder / part for part in _SUBFOLDERS.get(dataset, ("", "")))
    if dataset == "custom" and not val.is_dir() and (folder / "test").is_dir():
        val = folder / "test"
    return {"train": train, "val": val}


def _share_the_batch(cfg: DictConfig) -> None:
    """A table's batch is that of all processes together: each of several gets its part."""
    count = processes(cfg)
    size = OmegaConf.select(cfg, "optimizer.batch_size")
    if count > 1 and isinstance(size, int):
        if size % count:
            raise ValueError(f"a batch of {size} cannot be shared by {count} processes")
        cfg.optimizer.batch_size = size // count


def processes(cfg: DictConfig) -> int:
    """How many processes a run has.

    Raises:
        ValueError: devices that do not say it.
    """
    devices = spell_devices(cfg.devices, runs_on_cpu(cfg))
    if devices in ("auto", -1):
        raise ValueError(
            f"devices={cfg.devices}: a table needs their number, as its batch is of all"
        )
    return (len(devices) if isinstance(devices, list) else devices) * cfg.get("num_nodes", 1)


def plan_folder(table: Table, settings: Settings) -> Path:
    """Where a table's plan and report go; with overrides it is another table."""
    changes = [*settings.overrides, *([table.scale.dataset] if table.scale.another else [])]
    name = f"{table.name}-{digest(changes)}" if changes else table.name
    return settings.out / table.scale.name / name


def planned_seeds(folder: Path) -> list[int]:
    """The seeds that a table was asked for before."""
    try:
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        return list(dict.fromkeys(cell["seed"] for cell in plan["cells"]))
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_plan(folder: Path, table: Table, cells: Sequence[Cell], settings: Settings) -> None:
    """Remembers which runs a table shows, for its report."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = {
        "table": table.name,
        "scale": table.scale.name,
        "dataset": table.scale.dataset if table.scale.another else None,
        "overrides": list(settings.overrides),
        "cells": [
            {"row": c.row, "column": c.column, "seed": c.seed, "run": c.run.fingerprint}
            for c in cells
        ],
    }
    write_json(folder / "plan.json", plan)


def read_plan(folder: Path) -> tuple[Table, list[Cell], list[str]]:
    """A table that was started, its cells, and the user's overrides.

    Raises:
        FileNotFoundError: there is no plan in ``folder``.
        ValueError: it cannot be read.
    """
    path = folder / "plan.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder.name} has not been started (there is no {path})")
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        table = read_table(plan["table"], read_scale(plan["scale"], plan["dataset"]))
        cells = []
        for place in plan["cells"]:
            run = Run(place["run"], folder.parents[1] / "cells" / place["run"], OmegaConf.create())
            where = place["row"], place["column"], place["seed"]
            cells.append(Cell(table.name, *where, run, table.analysis))
        return table, cells, plan["overrides"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no plan of a table: {error!r}") from error
