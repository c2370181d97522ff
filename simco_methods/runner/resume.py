"""Which checkpoint a run goes on from, and whether it may."""

from __future__ import annotations

import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from simco_methods.files import user_path
from simco_methods.runner.folder import RunFolder, differences
from simco_methods.runner.rank import process_rank


@dataclass
class Resume:
    """What a run goes on from.

    Attributes:
        path: of the checkpoint.
        first_step: at which loggers go on.
        images: digests, by split, of the images that it was trained on; empty if it does not say.
    """

    path: Path
    first_step: int
    images: dict[str, str]

    def check_images(self, images: dict[str, str]) -> None:
        """Whether the images are those that the run began with.

        Raises:
            ValueError: they are not; the order of the images would be another.
        """
        differ = [split for split in self.images if self.images[split] != images.get(split)]
        if differ:
            raise ValueError(
                f"the images ({', '.join(differ)}) are not those that the run of {self.path} began "
                "with: put those back, or start anew in another output_dir"
            )


class Unreadable(ValueError):
    """A file that is no checkpoint, or not a whole one."""


def checkpoint_to_resume(cfg: DictConfig, folder: RunFolder) -> Resume | None:
    """The newest whole checkpoint of the folder, or the one that ``resume_from_checkpoint`` names.

    One of another folder is only where the run begins: what it has saved since comes first. One of
    this folder is a way back.

    Raises:
        FileNotFoundError: the one that is named is not there.
        ValueError: none that is whole, or one that a run of ``cfg`` may not go on from.
    """
    newest = [folder.last_checkpoint, folder.previous_checkpoint]
    newest = [path for path in newest if path.is_file() and cfg.auto_resume.enabled]
    if cfg.resume_from_checkpoint is not None:
        path = user_path(cfg.resume_from_checkpoint)
        if not path.is_file():
            raise FileNotFoundError(f"resume_from_checkpoint={path}: there is no such file")
        if not newest or path.resolve().parent == folder.checkpoints.resolve():
            return check_checkpoint(path, cfg)
    if not newest:
        return None
    hours = (time.time() - newest[0].stat().st_mtime) / 3600
    limit = cfg.auto_resume.max_hours
    if limit is not None and hours > limit:
        _say(f"{newest[0]} is {hours:.1f} hours old (auto_resume.max_hours={limit}): starts anew")
        return None
    faults = []
    for path in newest:
        try:
            resume = check_checkpoint(path, cfg)
        except Unreadable as error:
            faults.append(error)
        except ValueError as error:
            raise ValueError(f"{error}\nRemove it to start anew") from error
        else:
            for fault in faults:
                _say(f"note: {fault}: goes on from the one before, {path}")
            return resume
    raise ValueError("\n".join(map(str, faults)) + "\nRemove what is there to start anew")


def _say(line: str) -> None:
    if process_rank() == 0:
        print(line, flush=True)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint of the runner, its check sums held against all of its bytes; tensors are read
    from disk as they are needed.

    Raises:
        Unreadable: no checkpoint, not a whole one, or one that the runner did not write.
    """
    reason = ""
    try:
        with zipfile.ZipFile(path) as parts:
            broken = parts.testzip()
        if broken:
            raise ValueError(f"its part {broken} is damaged")
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        OmegaConf.create(checkpoint["simco_methods"]["config"])
        return checkpoint
    except (KeyError, TypeError):
        reason = "it was not written by simco-pretrain; continue it with what wrote it"
    except Exception as error:  # whatever the bytes do to the readers
        reason = f"{type(error).__name__}: {error}"
    raise Unreadable(f"{path} is no checkpoint that simco-pretrain can continue ({reason[:200]})")


def check_checkpoint(path: Path, cfg: DictConfig) -> Resume:
    """What a run of ``cfg`` goes on with from ``path``; only a longer ``max_epochs`` may differ.

    Raises:
        ValueError: no checkpoint of the runner, or one of another configuration.
    """
    checkpoint = read_checkpoint(path)
    stored = OmegaConf.create(checkpoint["simco_methods"]["config"])
    differ = differences(stored, cfg)
    extended = differ.pop("max_epochs", None) if cfg.max_epochs > stored.max_epochs else None
    if differ:
        raise ValueError(f"{path} is of another configuration:\n" + "\n".join(differ.values()))
    done = checkpoint["PretrainData"]["next_epoch"]
    if done > cfg.max_epochs:
        raise ValueError(f"{path} has {done} epochs, more than max_epochs={cfg.max_epochs}")
    if extended:
        _say(f"the schedule is stretched: {extended.strip()}")
    steps = checkpoint["loops"]["fit_loop"]["epoch_loop.state_dict"]["_batches_that_stepped"]
    return Resume(path, steps, checkpoint["simco_methods"].get("images") or {})
