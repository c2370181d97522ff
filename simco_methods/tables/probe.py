"""How fast runs will be on this machine: a few batches of each kind, in a process of its own."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simco_methods.files import write_json

_IMAGES_PER_BATCH = 256  # of which a scale gives the number


@dataclass(frozen=True)
class Speed:
    """What a probe of a kind of run found; ``error`` if it could not be made."""

    images_per_second: float = 0.0
    train_images: int = 0
    folder_bytes: int = 0
    error: str = ""

    def seconds(self, epochs: int) -> float:
        """Of a whole run: its images, a tenth for evaluation, its start."""
        return 15 + 1.1 * epochs * self.train_images / self.images_per_second


def kind(cfg: DictConfig) -> str:
    """Runs of one kind take about the same time an image, whatever batch, queue, temperatures."""
    keys = ("symmetric", "proj_hidden_dim", "proj_output_dim")
    method = {key: cfg.method_kwargs[key] for key in keys if key in cfg.method_kwargs}
    data = {k: v for k, v in cfg.data.items() if k != "download"}
    parts = [cfg.method, method, data, cfg.backbone, cfg.augmentations, cfg.precision, cfg.devices]
    plain = [OmegaConf.to_container(p) if OmegaConf.is_config(p) else p for p in parts]
    return json.dumps(plain, sort_keys=True)


def probe(cfgs: Mapping[str, DictConfig], batches: int, cache: Probes) -> dict[str, Speed]:
    """Speeds by kind, of the cache or of a process that measures those that are not there.

    Args:
        cfgs: a config of each kind, composed.
        batches: to time, of 256 images.
        cache: of this hardware; those measured are added.
    """
    missing = {name: cfg for name, cfg in cfgs.items() if name not in cache.speeds}
    if not missing:
        return {name: cache.speeds[name] for name in cfgs}
    with tempfile.TemporaryDirectory() as folder:
        asked, answers = Path(folder) / "asked.json", Path(folder) / "answers.json"
        configs = {name: OmegaConf.to_container(cfg) for name, cfg in missing.items()}
        write_json(asked, {"batches": batches, "configs": configs})
        done = subprocess.run(
            [sys.executable, "-m", "simco_methods.tables.probe", str(asked), str(answers)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        new = _read(answers)
    last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
    for name in missing:
        cache.speeds[name] = Speed(**new.get(name, {"error": f"the probe ended early: {last}"}))
    return {name: cache.speeds[name] for name in cfgs}


class Probes:
    """What former probes found on the same hardware, in a JSON file or in none.

    Attributes:
        speeds: by kind.
    """

    def __init__(self, path: Path | None, hardware: str):
        self._path, self._hardware = path, hardware
        self.speeds: dict[str, Speed] = {}
        try:
            known = _read(path).get(hardware, {}) if path else {}
            self.speeds = {name: Speed(**values) for name, values in known.items()}
        except (AttributeError, TypeError):  # of another version: measured again
            pass

    def write(self) -> None:
        """Adds what has been measured since to the file, if there is one."""
        if self._path is None:
            return
        measured = {name: vars(speed) for name, speed in self.speeds.items() if not speed.error}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, {**_read(self._path), self._hardware: measured})


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def measure(cfg: DictConfig, batches: int, folder: Path) -> Speed:
    """Two epochs of ``batches`` batches in ``folder``; the second counts."""
    from simco_methods.runner.train import prepare

    cfg = OmegaConf.merge(
        cfg,
        {
            "output_dir": str(folder),
            "max_epochs": 2,
            "limit_train_batches": max(2, batches * _IMAGES_PER_BATCH // cfg.optimizer.batch_size),
            "limit_val_batches": 1,
            "scheduler": {"warmup_epochs": 0},
            "data": {"download": False},  # what is to be downloaded has been
            "knn_eval": {"enabled": False},
            "checkpoint": {"enabled": True, "dir": None, "keep_prev": False},
            "wandb": {"enabled": False},
            "auto_resume": {"enabled": False},
        },
    )
    try:
        run = prepare(cfg)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"its data are not there (yet): {error}") from error
    images = len(run.data.train)
    run.fit()
    with open(folder / "metrics.csv", encoding="utf-8", newline="") as file:
        rate = float(list(csv.DictReader(file))[-1]["images_per_second"])
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Speed(rate, images, size)


def main(asked: Sequence[str]) -> None:
    """``python -m simco_methods.tables.probe ASKED ANSWERS``."""
    given = json.loads(Path(asked[0]).read_text(encoding="utf-8"))
    answers: dict[str, Any] = {}
    for name, content in given["configs"].items():
        try:  # a folder for each: together their checkpoints may be larger than the disk
            with tempfile.TemporaryDirectory(dir=Path(asked[0]).parent) as folder:
                speed = measure(OmegaConf.create(content), given["batches"], Path(folder))
        except Exception as error:  # the cell's own run will say it in full
            speed = Speed(error=f"{error}".splitlines()[0] if str(error) else repr(error))
        answers[name] = vars(speed)
        write_json(Path(asked[1]), answers)


if __name__ == "__main__":
    main(sys.argv[1:])
