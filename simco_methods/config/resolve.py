"""A config with its interpolations resolved, and what is missing or cannot be resolved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simco_methods.arguments import literal

_MISSING = "is not set"
_ENDLESS = "refers to a mapping that holds it itself"


def resolve(cfg: DictConfig) -> tuple[DictConfig, dict[str, str]]:
    """Plain values in place of interpolations.

    Args:
        cfg: not changed.

    Returns:
        The config without the keys that have no value (``???``) or refer to nothing, and what is
        wrong with each of those, by its path.
    """
    faults = {tuple(path): fault for path, fault in _without_value(cfg, [])}
    try:
        plain = OmegaConf.to_container(_without(cfg, faults), resolve=True)
    except (OmegaConfBaseException, RecursionError):
        # Mappings that refer to one another: each reference is in itself a good one.
        faults |= {tuple(path): _ENDLESS for path in _references(cfg, [])}
        plain = OmegaConf.to_container(_without(cfg, faults), resolve=True)
    named = {_spelt(path): fault for path, fault in faults.items()}
    return OmegaConf.create(_literal(plain)), named


def _literal(node: Any) -> Any:
    """Plain values for OmegaConf; what was resolved may hold ``${`` as text."""
    if isinstance(node, dict):
        return {key: _literal(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_literal(value) for value in node]
    return literal(node) if isinstance(node, str) else node


def _entries(node: DictConfig | ListConfig) -> list[Any]:
    return list(range(len(node)) if isinstance(node, ListConfig) else node.keys())


def _without_value(node: DictConfig | ListConfig, path: list[Any]) -> Iterator[tuple[list, str]]:
    for key in _entries(node):
        here = [*path, key]
        if OmegaConf.is_missing(node, key):
            yield here, _MISSING
        elif OmegaConf.is_interpolation(node, key):
            try:
                value = node[key]
            except (OmegaConfBaseException, RecursionError) as error:
                yield here, f"cannot be resolved: {str(error).splitlines()[0]}"
            else:
                if value == "???":
                    yield here, _MISSING
        elif OmegaConf.is_config(node[key]):
            yield from _without_value(node[key], here)


def _references(node: DictConfig | ListConfig, path: list[Any]) -> Iterator[list]:
    for key in _entries(node):
        here = [*path, key]
        if OmegaConf.is_missing(node, key):
            continue
        if OmegaConf.is_interpolation(node, key):
            try:
                if OmegaConf.is_config(node[key]):
                    yield here
            except (OmegaConfBaseException, RecursionError):
                continue
        elif OmegaConf.is_config(node[key]):
            yield from _references(node[key], here)


def _without(cfg: DictConfig, paths: Any) -> DictConfig:
    plain = OmegaConf.to_container(cfg, resolve=False)
    for *parents, last in paths:
        node = plain
        for key in parents:
            node = node[key]
        if isinstance(node, list):
            node[last] = None
        else:
            node.pop(last)
    return OmegaConf.create(plain)


def _spelt(path: tuple) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")
