"""The many spellings of devices and precisions, and the one of each that Lightning gets."""

from __future__ import annotations

import re
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

_MOST_DEVICES = 1024  # of one machine; a number of processes that is beyond it is a slip
_DEVICES = (
    f"a number from 1 to {_MOST_DEVICES}, a list of different device numbers, text of either, "
    "-1 or auto"
)


def runs_on_cpu(cfg: DictConfig) -> bool:
    """Whether ``accelerator`` means the CPU on this machine."""
    if cfg.accelerator != "auto":
        return cfg.accelerator == "cpu"
    return not (torch.cuda.is_available() or torch.backends.mps.is_available())


def _plain_devices(devices: Any) -> int | list[int] | str | None:
    """A number, a list of numbers or "auto"; None for anything else."""
    plain = OmegaConf.to_container(devices) if OmegaConf.is_config(devices) else devices
    if isinstance(plain, str):
        plain = plain.strip()
        if re.fullmatch(r"-?[0-9]{1,9}", plain):
            plain = int(plain)
        elif "," in plain and re.fullmatch(r"[0-9]{0,9}(\s*,\s*[0-9]{0,9})*", plain):
            plain = [int(part) for part in plain.split(",") if part.strip()]
    if type(plain) is int:
        return plain if plain == -1 or 0 < plain <= _MOST_DEVICES else None
    if isinstance(plain, list):
        numbers = plain and all(type(i) is int and 0 <= i < _MOST_DEVICES for i in plain)
        return plain if numbers and len(set(plain)) == len(plain) else None
    return plain if plain == "auto" else None


def devices_allowed(devices: Any) -> str | None:
    """What ``devices`` may be, or None if they are fine."""
    return None if _plain_devices(devices) is not None else _DEVICES


def spell_devices(devices: Any, on_cpu: bool) -> Any:
    """Lightning's spelling: on a CPU a number of processes, else as written.

    ``"1"``, ``1``, ``[0]`` and ``"0,"`` all mean one device; ``auto``, ``-1`` and ``"-1"`` all that
    are there, on a CPU one process.

    Raises:
        ValueError: none of these.
    """
    plain = _plain_devices(devices)
    if plain is None:
        raise ValueError(f"devices={devices!r}: must be {_DEVICES}")
    if on_cpu:
        return len(plain) if isinstance(plain, list) else 1 if plain in ("auto", -1) else plain
    return plain


_PRECISIONS = {
    "16": "16-mixed",
    "16-mixed": "16-mixed",
    "bf16": "bf16-mixed",
    "bf16-mixed": "bf16-mixed",
    "32": "32-true",
    "32-true": "32-true",
    "64": "64-true",
    "64-true": "64-true",
    "16-true": "16-true",
    "bf16-true": "bf16-true",
}


def precision_allowed(precision: Any) -> str | None:
    """What ``precision`` may be, or None if it is fine."""
    known = isinstance(precision, int | str) and str(precision) in _PRECISIONS
    return None if known else f"one of {', '.join(_PRECISIONS)}"


def spell_precision(precision: Any, on_cpu: bool) -> str:
    """Lightning's long spelling. float16 is not for a CPU: there 16-mixed trains in 32-true.

    Raises:
        ValueError: an unknown precision.
    """
    allowed = precision_allowed(precision)
    if allowed:
        raise ValueError(f"precision={precision!r}: must be {allowed}")
    spelt = _PRECISIONS[str(precision)]
    if on_cpu and spelt.startswith("16"):
        print(f"precision {spelt} is for a GPU; on this CPU the run trains in 32-true", flush=True)
        return "32-true"
    return spelt
