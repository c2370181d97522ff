"""One folder a run: what is in it, whether it is finished, and whose it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simco_methods.config.parse import DEFAULTS, fingerprint, flatten, identity
from simco_methods.data.decode import shell_word
from simco_methods.files import lock, user_path, write_json, write_text

_held: set[int] = set()


def _leave_to_the_parent() -> None:
    # Else a loader's worker would hold the lock of a run that was killed until it notices.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


class RunFolder:
    """The folder of one run.

    Files:
        config.yaml: the completed config; ``simco-pretrain`` runs it again.
        metrics.csv: one row an epoch.
        curves.png: loss and accuracies.
        summary.json: written when the run has finished, and only then.
        checkpoints/last.ckpt: the newest state, previous.ckpt the one before while it trains.
        unreadable.json: with ``data.on_error=skip``, the images that were left out; beside it the
            lock of the process that looks for them.
        .lock: held by the process that trains.
        checkpoints/args.json: beside it, as solo-learn's ``main_knn.py`` and ``main_umap.py`` want.

    Args:
        cfg: a completed config. Without ``output_dir`` the folder is
            ``runs/<name>/<fingerprint>``, so that another configuration has another folder.

    Raises:
        ValueError: a folder that belongs to a run of another configuration.
    """

    def __init__(self, cfg: DictConfig):
        self.cfg = cfg
        self.fingerprint = fingerprint(cfg)
        default = Path("runs") / cfg.name / self.fingerprint
        self.path = user_path(cfg.output_dir) if cfg.output_dir else default
        self.config = self.path / "config.yaml"
        self.summary = self.path / "summary.json"
        self.metrics = self.path / "metrics.csv"
        self.curves = self.path / "curves.png"
        checkpoints = self.path
        if cfg.checkpoint.dir:
            checkpoints = user_path(cfg.checkpoint.dir) / f"{cfg.name}-{self.fingerprint}"
        self.checkpoints = checkpoints / "checkpoints"
        self.last_checkpoint = self.checkpoints / "last.ckpt"
        self.previous_checkpoint = self.checkpoints / "previous.ckpt"
        self.unreadable = self.path / "unreadable.json"
        self._lock: int | None = None
        self._check_owner()

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.summary.exists()

    def _check_owner(self) -> None:
        if not self.config.exists():
            return
        differ = differences(OmegaConf.load(self.config), self.cfg)
        if differ:
            extends = (
                f" To extend that run, name another one and resume_from_checkpoint="
                f"{shell_word(self.last_checkpoint)}"
            )
            raise ValueError(
                f"{self.path} holds a run of another configuration:\n"
                + "\n".join(differ.values())
                + "\nLeave output_dir out, name another one, or remove that folder."
                + (extends if list(differ) == ["max_epochs"] else "")
            )

    def changed_settings(self) -> list[str]:
        """Settings that the run in the folder had otherwise and that make it no other run."""
        there = {**DEFAULTS, **flatten(OmegaConf.to_container(OmegaConf.load(self.config)))}
        return [
            f"{key}={_spelt(value)} (it was {_spelt(there[key]) if key in there else 'not set'})"
            for key, value in flatten(OmegaConf.to_container(self.cfg)).items()
            if value != there.get(key, "not set") and key != "output_dir"
        ]

    def take(self) -> None:
        """Keeps other processes from training in the folder, if it is there, until :meth:`leave`.

        Raises:
            ValueError: another process has it.
        """
        if self._lock is not None or not self.path.is_dir():
            return
        try:
            self._lock = lock(self.path / ".lock")
        except OSError as error:
            print(f"note: {error}: do not start the same run twice at once", flush=True)
            return
        if self._lock is None:
            raise ValueError(
                f"another process is training in {self.path}; wait for it, end it, or name another "
                "output_dir"
            )
        _held.add(self._lock)
        # Of a process that was killed.
        for leftover in (*self.path.glob(".*.part"), *self.checkpoints.glob("*.part")):
            leftover.unlink()

    def leave(self) -> None:
        """Lets other processes train in the folder."""
        if self._lock is not None:
            _held.discard(self._lock)
            os.close(self._lock)
            self._lock = None

    def create(self, parsed: DictConfig) -> None:
        """Makes the folder and writes the config into it; ``parsed`` is what the model got."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.take()
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            write_text(self.config, OmegaConf.to_yaml(self.cfg))
            write_json(self.checkpoints / "args.json", OmegaConf.to_container(parsed))
        except OSError as error:
            raise ValueError(f"the run's folder cannot be made: {error}") from error


def _spelt(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def differences(there: DictConfig, here: DictConfig) -> dict[str, str]:
    """What makes two completed configs different runs: a line for each key."""
    other, own = identity(there), identity(here)
    return {
        key: f"  {key}: {other.get(key, 'unset')} there, {own.get(key, 'unset')} here"
        for key in sorted({*own, *other})
        if own.get(key, "unset") != other.get(key, "unset")
    }
