"""Checkpoints as files: read safely, with the configuration that they were trained with."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

CHECKPOINTS = "checkpoints"  # folder of a run's
_SHOWN = 4  # names in a message


def checkpoint_in(folder: Path) -> Path:
    """The checkpoint that a folder is about: of a run the newest, else the only file of weights.

    Raises:
        FileNotFoundError: none, with the folders of runs that are in it.
        ValueError: several.
    """
    checkpoints = folder / CHECKPOINTS
    places = [checkpoints, folder] if checkpoints.is_dir() else [folder]
    for place in places:
        if (place / "last.ckpt").is_file():
            return place / "last.ckpt"
        for ending in ("*.ckpt", "*.safetensors", "*.pth"):
            found = sorted(place.glob(ending))
            if len(found) == 1:
                return found[0]
            if found:
                raise ValueError(f"{place} holds several ({_names(found)}): name one of them")
    said = f"there is no checkpoint in the folder {folder}, nor in {CHECKPOINTS}/ in it"
    if (folder / "summary.json").is_file():
        said += ": its run has finished, but its checkpoint was not saved or was removed"
    elif runs := sorted(path.parent for path in folder.glob(f"*/{CHECKPOINTS}")):
        said += f"; it holds the folders of runs ({_names(runs)}): name one of them"
    raise FileNotFoundError(said)


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths[:_SHOWN]) + ", ..." * (len(paths) > _SHOWN)


def read_file(path: Path, trusted: bool = False) -> Any:
    """What ``torch.save`` wrote, read from disk as it is needed.

    Args:
        path: the file.
        trusted: also read one that holds more than plain values, which may run any code.

    Raises:
        FileNotFoundError: no such file.
        ValueError: nothing that torch wrote, or something that would have to be trusted.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        # torch's format of before version 1.6, a pickle, cannot be mapped into memory.
        with open(path, "rb") as file:
            mapped = file.read(2) != b"\x80\x02"
        return torch.load(path, map_location="cpu", weights_only=not trusted, mmap=mapped)
    except pickle.UnpicklingError as error:
        if "eights only" not in str(error):
            raise ValueError(f"{path} cannot be read as a checkpoint") from error
        raise ValueError(
            f"{path} holds more than plain values, which could run any code; trusted=true reads it "
            "if you trust it"
        ) from error
    except Exception as error:
        raise ValueError(f"{path} cannot be read as a checkpoint (is it whole?)") from error


def read_checkpoint(path: Path, trusted: bool = False) -> dict[str, Any]:
    """A checkpoint of Lightning's; arguments and errors as of :func:`read_file`.

    Raises:
        ValueError: a file without a ``state_dict``.
    """
    content = read_file(path, trusted)
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), dict):
        raise ValueError(f"{path} is no checkpoint of a training run (it has no state_dict)")
    return content


def configuration(path: Path, content: Mapping[str, Any]) -> DictConfig:
    """What a checkpoint was trained with: as ``simco-pretrain`` wrote it into the checkpoint, else
    as solo-learn's ``main_pretrain.py`` leaves it beside, in ``args.json``; else nothing."""
    if "simco_methods" in content:
        return OmegaConf.create(content["simco_methods"]["config"])
    beside = path.with_name("args.json")
    if not beside.is_file():
        return OmegaConf.create({})
    try:
        return OmegaConf.create(json.loads(beside.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{beside} is no JSON: {error}") from error


def below(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries whose names begin with ``prefix``, without it."""
    return {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}


def load_weights(path: Path, module: nn.Module, state: Mapping[str, Tensor], what: str) -> None:
    """Loads all of ``state``, which must be all that ``module`` has.

    Args:
        path: where it is from.
        module: what gets it.
        state: names to tensors.
        what: what to call the module in an error.

    Raises:
        ValueError: names or shapes that differ, the first three of them; the first names of both
            sides if none is the same.
    """
    own = module.state_dict()
    if not set(own) & set(state):
        raise ValueError(
            f"no weight in {path} is of {what}: the file has {_first(state)}; needed are "
            f"{_first(own)}"
        )
    differ = [f"{key} is not there" for key in own if key not in state]
    differ += [f"{key} is not known" for key in state if key not in own]
    differ += [
        f"{key} has the shape {tuple(state[key].shape)}, not {tuple(value.shape)}"
        for key, value in own.items()
        if key in state and state[key].shape != value.shape
    ]
    if differ:
        raise ValueError(
            f"the weights in {path} are not of {what}: {'; '.join(differ[:3])}"
            + (f" and {len(differ) - 3} more" if len(differ) > 3 else "")
        )
    module.load_state_dict(state)


def _first(names: Iterable[str], count: int = 4) -> str:
    names = list(names)
    return ", ".join(names[:count]) + (f", ... ({len(names)})" if len(names) > count else "")
