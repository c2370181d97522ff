"""The many spellings of devices and precisions, and the one of each that Lightning gets."""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf


def runs_on_cpu(cfg: DictConfig) -> bool:
    """Whether ``accelerator`` means the CPU on this machine."""
    if cfg.accelerator != "auto":
        return cfg.accelerator == "cpu"
    return not (torch.cuda.is_available() or torch.backends.mps.is_available())


def spell_devices(devices: Any, on_cpu: bool) -> Any:
    """Lightning's spelling: on a CPU a number of processes, else as written.

    ``"1"``, ``1``, ``[0]`` and ``"0,"`` all mean one device; ``auto``, ``-1`` and ``"-1"`` all that
    are there, on a CPU one process.

    Raises:
        ValueError: none of these.
    """
    plain = OmegaConf.to_container(devices) if OmegaConf.is_config(devices) else devices
    if isinstance(plain, str):
        plain = plain.strip()
        if plain.lstrip("-").isdigit():
            plain = int(plain)
        elif "," in plain and all(part.strip().isdigit() for part in plain.split(",") if part):
            plain = [int(part) for part in plain.split(",") if part.strip()]
    whole = isinstance(plain, int) and not isinstance(plain, bool) and (plain > 0 or plain == -1)
    several = isinstance(plain, list) and plain and all(isinstance(i, int) for i in plain)
    if not (whole or several or plain == "auto"):
        raise ValueError(
            f"devices={devices!r}: must be a number above 0, a list of device numbers, "
            "text of either, -1 or auto"
        )
    if on_cpu:
        return len(plain) if several else 1 if plain in ("auto", -1) else plain
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


def spell_precision(precision: Any, on_cpu: bool) -> str:
    """Lightning's long spelling. float16 is not for a CPU: there 16-mixed trains in 32-true.

    Raises:
        ValueError: an unknown precision.
    """
    spelt = _PRECISIONS.get(str(precision))
    if spelt is None:
        raise ValueError(f"precision={precision!r}: must be one of {', '.join(_PRECISIONS)}")
    if on_cpu and spelt.startswith("16"):
        print(f"precision {spelt} is for a GPU; on this CPU the run trains in 32-true", flush=True)
        return "32-true"
    return spelt
