"""One folder a run: what is in it, whether it is finished, and whose it is."""

from __future__ import annotations

from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from simco_methods.config import fingerprint, identity
from simco_methods.files import write_json, write_text


class RunFolder:
    """The folder of one run.

    Files:
        config.yaml: the completed config; ``simco-pretrain`` runs it again.
        metrics.csv: one row an epoch.
        curves.png: loss and accuracies.
        summary.json: written when the run has finished, and only then.
        checkpoints/last.ckpt: the newest state.
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
        self.path = Path(cfg.output_dir or Path("runs") / cfg.name / self.fingerprint)
        self.config = self.path / "config.yaml"
        self.summary = self.path / "summary.json"
        self.metrics = self.path / "metrics.csv"
        self.curves = self.path / "curves.png"
        checkpoints = Path(cfg.checkpoint.dir or self.path)
        if cfg.checkpoint.dir:
            checkpoints = checkpoints / f"{cfg.name}-{self.fingerprint}"
        self.checkpoints = checkpoints / "checkpoints"
        self.last_checkpoint = self.checkpoints / "last.ckpt"
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
            raise ValueError(
                f"{self.path} holds a run of another configuration:\n"
                + "\n".join(differ.values())
                + "\nLeave output_dir out, name another one, or remove that folder."
            )

    def create(self, parsed: DictConfig) -> None:
        """Makes the folder and writes the config into it; ``parsed`` is what the model got."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            write_text(self.config, OmegaConf.to_yaml(self.cfg))
            write_json(self.checkpoints / "args.json", OmegaConf.to_container(parsed))
        except OSError as error:
            raise ValueError(f"the run's folder cannot be made: {error}") from error


def differences(there: DictConfig, here: DictConfig) -> dict[str, str]:
    """What makes two completed configs different runs: a line for each key."""
    other, own = identity(there), identity(here)
    return {
        key: f"  {key}: {other.get(key, 'unset')} there, {own.get(key, 'unset')} here"
        for key in sorted({*own, *other})
        if own.get(key, "unset") != other.get(key, "unset")
    }


def check_checkpoint(path: Path, cfg: DictConfig) -> None:
    """Whether a run of ``cfg`` may go on from ``path``: only ``max_epochs`` may differ.

    Raises:
        ValueError: no checkpoint of the runner, or one of another configuration.
    """
    try:
        # Read from disk as it is needed: nothing but the config is.
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        stored = OmegaConf.create(checkpoint["simco_methods"]["config"])
    except Exception as error:
        foreign = "it was not written by simco-pretrain; continue it with what wrote it"
        reason = foreign if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{path} is no checkpoint that simco-pretrain can continue ({reason[:200]})"
        ) from error
    differ = differences(stored, cfg)
    extended = differ.pop("max_epochs", None)
    if differ:
        raise ValueError(f"{path} is of another configuration:\n" + "\n".join(differ.values()))
    done = checkpoint["epoch"] + 1
    if done > cfg.max_epochs:
        raise ValueError(f"{path} has {done} epochs, more than max_epochs={cfg.max_epochs}")
    if extended:
        print(f"the schedule is stretched: {extended.strip()}", flush=True)
