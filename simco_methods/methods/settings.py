"""The settings of a method, ``method_kwargs``: their defaults, and what each may be."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from omegaconf import DictConfig, OmegaConf

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
        ValueError: a key that the method does not know, or a value out of range, by name.
    """
    if projected:
        defaults = {"proj_hidden_dim": 128, "proj_output_dim": 128, **defaults}
    given = OmegaConf.select(cfg, "method_kwargs")
    given = {} if given is None else OmegaConf.to_container(given)
    settings = _completed(given, defaults, "method_kwargs", cfg.method)
    OmegaConf.update(cfg, "method_kwargs", settings, merge=False, force_add=True)
    return cfg


def _completed(given: Any, defaults: dict[str, Any], path: str, method: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{path} must be a mapping with keys of its own, got {given!r}")
    check_settings(given, defaults, method, _FOREIGN_NAMES, path)
    settings = {}
    for key, default in defaults.items():
        value, name = given.get(key), f"{path}.{key}"
        if isinstance(default, dict):
            settings[key] = _completed(value or {}, default, name, method)
            continue
        if value is None:
            value = default[0] if isinstance(default, tuple) else default
        _check_value(name, key, value, default)
        settings[key] = value
    return settings


def _check_value(name: str, key: str, value: Any, default: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, tuple):
        if value not in default:
            raise ValueError(f"{name} must be one of {', '.join(default)}, got {value!r}")
    elif isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {value!r}")
    elif key.startswith("tau"):
        if not (number and math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    elif value is not None and not (isinstance(value, int) and number and value > 0):
        raise ValueError(f"{name} must be a whole number above 0, got {value!r}")


def check_settings(
    given: Iterable[str],
    known: Collection[str],
    method: str,
    other_names: Mapping[str, str],
    path: str = "method_kwargs",
) -> None:
    """Holds the keys of ``method_kwargs`` to those that the method knows.

    Args:
        given: the keys.
        known: those that there are.
        method: whose they are, for the message.
        other_names: what a key of another implementation's means here.
        path: where the keys stand.

    Raises:
        ValueError: the first unknown key, with what is nearest and what is known.
    """
    for key in given:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            meant = other_names.get(key) or (near[0] if near else None)
            question = f"did you mean {meant}? " if meant else ""
            raise ValueError(
                f"{path}.{key} is unknown to {method}; {question}it knows {', '.join(known)}"
            )
