"""From a table to its cells, and which of them it was last asked for."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simco_methods.config import complete, fingerprint, runs_on_cpu
from simco_methods.config.spelling import spell_devices
from simco_methods.files import write_json
from simco_methods.overrides import accept_every_key
from simco_methods.tables.cells import Cell, Run
from simco_methods.tables.definition import Entry, Table

# Of a folder of all data sets, what holds each; the others are in the folder itself.
_SUBFOLDERS = {"imagenet100": ("imagenet100/train", "imagenet100/val"), "custom": ("train", "val")}


@dataclass(frozen=True)
class Settings:
    """What is the same for all cells.

    Attributes:
        seeds: a run of each cell for each.
        data: the folder of the data sets.
        out: the folder of all results; finished runs in it are found by every table.
        overrides: of the user, over those of the table.
    """

    seeds: tuple[int, ...]
    data: Path
    out: Path
    overrides: tuple[str, ...] = ()


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
    entries = row[1], column[1]
    dataset = table.scale.dataset or column[1].dataset or row[1].dataset or table.dataset
    config = column[1].config or row[1].config
    words = {**row[1].words, **column[1].words, "row": row[0], "column": column[0]}
    overrides = [
        *table.scale.set,
        *table.scale.of.get(config, ()),
        *(text.format(**words) for entry in entries for text in entry.set),
        *_data(dataset, settings.data),
        f"seed={seed}",
        *settings.overrides,
    ]
    leaf = dataset
    if dataset == "custom":  # of any size: taken as small images
        leaf = "cifar10"
        overrides = ["dataset=custom", "augmentations=crop32", *overrides]
    cfg = _composed(f"{leaf}/{config}", accept_every_key(overrides))
    _share_the_batch(cfg)
    name = fingerprint(complete(cfg))
    folder = settings.out / "cells" / name
    cfg.output_dir = str(folder)
    return Run(name, folder, cfg)


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


def _data(dataset: str, folder: Path) -> Iterator[str]:
    if dataset == "digits":
        return
    folder = folder.resolve()  # the same run from wherever the script is called
    train, val = (folder / part for part in _SUBFOLDERS.get(dataset, ("", "")))
    if dataset == "custom" and not val.is_dir() and (folder / "test").is_dir():
        val = folder / "test"
    yield f"data.train_path='{train}'"
    yield f"data.val_path='{val}'"


def _share_the_batch(cfg: DictConfig) -> None:
    """A table's batch is that of all processes together: each of several gets its part."""
    devices = spell_devices(cfg.devices, runs_on_cpu(cfg))
    if devices in ("auto", -1):
        devices = max(1, torch.cuda.device_count())
    count = (len(devices) if isinstance(devices, list) else devices) * cfg.get("num_nodes", 1)
    size = cfg.optimizer.batch_size
    if size % count:
        raise ValueError(f"a batch of {size} cannot be shared by {count} processes")
    cfg.optimizer.batch_size = size // count


def plan_file(out: Path, scale: str, table: str) -> Path:
    """Which runs a table shows, as it was last asked for."""
    return out / scale / table / "plan.json"


def write_plan(table: Table, cells: Sequence[Cell], settings: Settings) -> None:
    """Remembers a table's cells for its report."""
    path = plan_file(settings.out, table.scale.name, table.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    places: Sequence[Mapping[str, Any]] = [
        {"row": c.row, "column": c.column, "seed": c.seed, "run": c.run.fingerprint} for c in cells
    ]
    write_json(path, {"overrides": list(settings.overrides), "cells": places})


def read_plan(table: Table, out: Path) -> tuple[list[Cell], list[str]]:
    """The cells of :func:`write_plan`, and the user's overrides.

    Raises:
        FileNotFoundError: the table has not been asked for at this scale.
    """
    path = plan_file(out, table.scale.name, table.name)
    if not path.is_file():
        raise FileNotFoundError(
            f"{table.name} has not been started at scale {table.scale.name} in {out} "
            f"(there is no {path})"
        )
    plan = json.loads(path.read_text(encoding="utf-8"))
    cells = []
    for place in plan["cells"]:
        folder = out / "cells" / place["run"]
        run = Run(place["run"], folder, OmegaConf.create())
        where = place["row"], place["column"], place["seed"]
        cells.append(Cell(table.name, *where, run, table.analysis))
    return cells, plan["overrides"]
