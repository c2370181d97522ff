"""Goes through a config key by key: which are unknown, which values do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simco_methods.config.checks import Check


def walk(
    node: DictConfig,
    checks: Mapping[str, Check],
    prefix: str = "",
    refused: Mapping[str, str] | None = None,
    path: str = "",
) -> Iterator[str]:
    """What is wrong with a mapping.

    Args:
        node: a resolved config or a part of one.
        checks: what the value of each dotted key may be; ``{}`` holds keys of its own.
        prefix: where the mapping stands.
        refused: keys that are left out on purpose, and why.
        path: of ``node`` below the mapping.

    Yields:
        A line for each unknown key, with the nearest one, and for each value, with what is allowed.
    """
    for name in node:
        key = f"{path}{name}"
        if OmegaConf.is_missing(node, name):
            continue
        value = node[name]
        is_group = any(other.startswith(f"{key}.") for other in checks)
        if "." in str(name):
            yield f"{prefix}{path}{name!r} is a key with a dot: write its parts as nested mappings"
        elif key in checks:
            allowed = checks[key](value)
            if allowed:
                yield f"{prefix}{key}={shown(value)}: must be {allowed}"
        elif is_group and isinstance(value, DictConfig):
            yield from walk(value, checks, prefix, refused, f"{key}.")
        elif is_group:
            yield f"{prefix}{key}={shown(value)}: must be a mapping with keys of its own"
        elif refused and key in refused:
            yield f"{prefix}{key} is no key of the runner: {refused[key]}"
        else:
            near = nearest(f"{prefix}{key}", {f"{prefix}{other}": None for other in checks})
            yield f"{prefix}{key} is no key of the runner{question(near)}"


def nearest(key: str, known: Mapping[str, Any]) -> str | None:
    """The known key most like ``key``, by its whole path or by its last part alone."""
    groups = {other.rsplit(".", depth)[0] for other in known for depth in (1, 2)}
    names = [*known, *sorted(groups - set(known))]
    close = get_close_matches(key, names, n=1, cutoff=0.75)
    if close:
        return close[0]
    by_leaf = {other.rsplit(".", 1)[-1]: other for other in names}
    close = get_close_matches(key.rsplit(".", 1)[-1], by_leaf, n=1, cutoff=0.75)
    return by_leaf[close[0]] if close else None


def question(near: str | None) -> str:
    """What follows an unknown name: "; did you mean ...?", or nothing."""
    return f"; did you mean {near}?" if near else ""


def shown(value: Any) -> str:
    """A value as it is shown in a message, not longer than a line."""
    if isinstance(value, DictConfig | ListConfig):
        value = OmegaConf.to_container(value)
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def value_at(cfg: DictConfig, key: str) -> Any:
    """The value at a dotted key, None where there is none, or no mapping on the way to it."""
    try:
        return OmegaConf.select(cfg, key)
    except OmegaConfBaseException:
        return None


def mapping_at(cfg: DictConfig, key: str) -> dict[Any, Any]:
    """The plain mapping at ``key``, an empty one if there is none."""
    value = value_at(cfg, key)
    return OmegaConf.to_container(value) if isinstance(value, DictConfig) else {}


def reason(error: Exception) -> str:
    """Why a library refused something, in a line."""
    text = " ".join(str(error).split()) or "no reason given"
    return f"{type(error).__name__}: {text[:160]}"
