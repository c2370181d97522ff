"""The settings of a method, ``method_kwargs``: their defaults, and what each may be."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simco_methods.options import LARGEST

TEMPERATURES = 1e-6, 1e6  # beyond, similarities divided by them are infinite or 0 in float32

# What other implementations call our settings.
_FOREIGN_NAMES = {
    "temperature": "tau (MoCo v2) or tau_alpha",
    "dt_m": "tau_beta = dt_m * tau_alpha",
    "plus_version": "symmetric",
    "momentum_queue": "queue_size",
}


def method_settings(
    cfg: DictConfig, defaults: dict[str, Any], *, projected: bool = True
) -> DictConfig:
    """Completes and checks ``cfg.method_kwargs``.

    Args:
        cfg: the config; changed in place.
        defaults: every setting that the method knows beside the projector's widths, with its
            default. Names beginning with ``tau`` are temperatures, booleans are flags, a tuple is
            the choices there are, the first of which is the default, a mapping is a group of
            settings; all else are counts, None for one that may be left out.
        projected: whether the method has a projector, whose widths are settings too.

    Returns:
        ``cfg``.

    Raises:
        ValueError: every key that the method does not know and every value out of range, by name, a
            line each.
    """
    if projected:
        defaults = {"proj_hidden_dim": 128, "proj_output_dim": 128, **defaults}
    given = OmegaConf.select(cfg, "method_kwargs")
    given = {} if given is None else OmegaConf.to_container(given)
    faults: list[str] = []
    settings = _completed(given, defaults, "method_kwargs", cfg.method, faults)
    refuse(faults)
    OmegaConf.update(cfg, "method_kwargs", settings, merge=False, force_add=True)
    return cfg


def refuse(faults: Collection[str]) -> None:
    """Raises ``ValueError`` with the faults, a line each, if there are any."""
    if faults:
        raise ValueError("\n".join(faults))


def _completed(
    given: Any, defaults: dict[str, Any], path: str, method: str, faults: list[str]
) -> dict[str, Any]:
    if not isinstance(given, dict):
        faults.append(f"{path} must be a mapping with keys of its own, got {given!r}")
        return {}
    faults += unknown_settings(given, defaults, method, _FOREIGN_NAMES, path)
    settings = {}
    for key, default in defaults.items():
        value, name = given.get(key), f"{path}.{key}"
        if isinstance(default, dict):
            nested = {} if value is None else value
            settings[key] = _completed(nested, default, name, method, faults)
            continue
        if value is None:
            value = default[0] if isinstance(default, tuple) else default
        allowed = _allowed(key, value, default)
        if allowed:
            faults.append(f"{name} must be {allowed}, got {value!r}")
        settings[key] = value
    return settings


def _allowed(key: str, value: Any, default: Any) -> str | None:
    """What the value may be, None if it is fine."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, tuple):
        return None if value in default else f"one of {', '.join(default)}"
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if key.startswith("tau"):
        if not (number and 0 < value < math.inf):
            return "a finite number above 0"
        low, high = TEMPERATURES
        return None if low <= value <= high else f"a number from {low:g} to {high:g}"
    if value is None:
        return None
    whole = number and isinstance(value, int) and value > 0
    if whole and value > LARGEST:
        return f"a whole number from 1 to {LARGEST}"
    return None if whole else "a whole number above 0"


def unknown_settings(
    given: Iterable[str],
    known: Collection[str],
    method: str,
    other_names: Mapping[str, str],
    path: str = "method_kwargs",
) -> Iterator[str]:
    """What of the keys of ``method_kwargs`` the method does not know.

    Args:
        given: the keys.
        known: those that there are.
        method: whose they are, for the message.
        other_names: what a key of another implementation's means here.
        path: where the keys stand.

    Yields:
        For each unknown key, what is nearest and what is known.
    """
    for key in map(str, given):
        if key not in known:
            near = get_close_matches(key, known, n=1)
            meant = other_names.get(key) or (near[0] if near else None)
            question = f"did you mean {meant}? " if meant else ""
            listed = ", ".join(known) or "none"
            yield f"{path}.{key} is unknown to {method}; {question}it knows {listed}"
