"""The cells of a table: which run each is, where it goes, how far it has come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simco_methods.config.parse import digest
from simco_methods.files import write_json, write_text
from simco_methods.tables.definition import Analysis


@dataclass(frozen=True)
class Run:
    """A run that one or several places of tables show.

    Attributes:
        fingerprint: of its full configuration; its name.
        folder: where it goes.
        cfg: as composed, to be completed on the machine that runs it.
    """

    fingerprint: str
    folder: Path
    cfg: DictConfig

    @property
    def finished(self) -> bool:
        """Whether it has been trained to its end."""
        return (self.folder / "summary.json").exists()

    @property
    def epochs_done(self) -> int:
        """Epochs that are recorded."""
        try:
            return max(0, len((self.folder / "metrics.csv").read_text().splitlines()) - 1)
        except OSError:
            return 0

    @property
    def log(self) -> Path:
        """What it has said."""
        return self.folder / "log.txt"

    @property
    def failure(self) -> Path:
        """Written when it fails, with the reason; gone when it is tried again."""
        return self.folder / "failed.txt"

    def prepare(self) -> None:
        """Writes what the run is into its folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "cell.yaml", OmegaConf.to_yaml(self.cfg))


@dataclass(frozen=True)
class Cell:
    """A place in a table, for one seed."""

    table: str
    row: str
    column: str
    seed: int
    run: Run
    analysis: Analysis | None = None

    @property
    def label(self) -> str:
        """For people."""
        short = self.table.split("_")[0] if self.table[:5] in ("table", "figur") else self.table
        return f"{short}: {self.row}, {self.column}, seed {self.seed}"

    @property
    def finished(self) -> bool:
        """Whether its figure is there."""
        return self.run.finished and (self.analysis is None or self._analysed.exists())

    @property
    def state(self) -> str:
        """One word or two, for a report."""
        if self.finished:
            return "finished"
        if self.run.failure.exists():
            return "failed"
        if self.run.finished:
            return "not analysed"
        return "unfinished" if self.run.epochs_done else "missing"

    @property
    def _analysed(self) -> Path:
        return analysis_folder(self.run.folder, self.analysis) / self.analysis.file

    def prepare(self) -> None:
        """Writes what is to be done into the run's folder."""
        self.run.prepare()
        if self.analysis:
            folder = analysis_folder(self.run.folder, self.analysis)
            folder.mkdir(parents=True, exist_ok=True)
            content = {"arguments": list(self.analysis.arguments), "file": self.analysis.file}
            write_json(folder / "wanted.json", content)

    def results(self) -> dict[str, Any]:
        """The summary of a finished cell, an analysis' figures among those of the last epoch."""
        path = self.run.folder / "summary.json"
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
            figures = dict(summary["last_epoch"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no summary of a run: {error!r}") from error
        if self.analysis:
            wanted = (
                (self.analysis.row, float(self.row)),
                (self.analysis.column, float(self.column)),
            )
            for line in json.loads(self._analysed.read_text(encoding="utf-8"))["rows"]:
                if all(line[key] == value for key, value in wanted):
                    figures |= line
        figures |= {
            key: summary[key] for key in ("knn_acc1", "untrained_knn_acc1") if key in summary
        }
        return {**summary, "figures": figures}


def analysis_folder(run: Path, analysis: Analysis) -> Path:
    """Where the results of an analysis of a run go; other arguments have another folder."""
    return run / "analyses" / digest(analysis.arguments)


def distinct(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Run by run, the places that show it."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.run.fingerprint, []).append(cell)
    return found
