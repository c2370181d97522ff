"""``key=value`` settings of a command: a dataclass says which there are and what each may be."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from simco_methods.config.checks import Check, as_list
from simco_methods.config.schema import odd_keys
from simco_methods.config.walk import nearest, reason, shown

Settings = TypeVar("Settings")


def setting(default: Any, check: Check, listed: bool = False, commas: bool = False) -> Any:
    """A field of a settings dataclass.

    Args:
        default: its value where nothing is given; a list is copied.
        check: what it may be.
        listed: whether it is a list, of which one entry may be given alone; repeated entries count
            once.
        commas: whether ``a,b`` is such a list, too.
    """
    metadata = {"check": check, "listed": listed, "commas": commas}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def parse_settings(program: str, kind: type[Settings], arguments: Sequence[str]) -> Settings:
    """Reads ``key=value`` arguments.

    Args:
        program: what to call the command.
        kind: a dataclass of :func:`setting` fields. If it has a field ``config``, a
            ``DictConfig``, that takes the keys below those of its class's ``CONFIG``, which are
            keys of a run's configuration.
        arguments: in the notation of OmegaConf's dot lists.

    Raises:
        ValueError: everything that is wrong with them, a line each.
    """
    faults = [f"{a} is not of the form key=value" for a in arguments if "=" not in a[1:]]
    if faults:
        raise ValueError("\n".join(faults))
    given = OmegaConf.create({})
    for argument in arguments:
        _merge(given, argument, argument)
    fields = {f.name: f for f in dataclasses.fields(kind) if "check" in f.metadata}
    config: Sequence[str] = getattr(kind, "CONFIG", ())
    plain: dict[str, Any] = {}
    for key, value in given.items():
        if key in config:
            faults += _odd_override(key, value)
            continue
        if key not in fields:
            near = nearest(key, {**fields, **dict.fromkeys(config)})
            faults.append(
                f"{key} is no setting of {program}"
                + (f"; did you mean {near}?" if near in fields else ".")
                + f" It knows {', '.join([*fields, *(f'{name}.*' for name in config)])}"
            )
            continue
        value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        known = fields[key].metadata
        if known["commas"] and isinstance(value, str):
            value = _parts(key, value)
        allowed = known["check"](value)
        if allowed:
            faults.append(f"{key}={shown(value)}: must be {allowed}")
        elif known["listed"] and value is not None:
            value = list(dict.fromkeys(as_list(value)))
        plain[key] = value
    if faults:
        raise ValueError("\n".join(faults))
    if config:
        plain["config"] = OmegaConf.create({key: given[key] for key in config if key in given})
    return kind(**plain)


def _merge(given: DictConfig, entry: str, argument: str) -> None:
    key, _, value = entry.partition("=")
    try:
        if " #" in value and not value.lstrip().startswith(("'", '"', "[", "{")):
            OmegaConf.update(given, key, value, force_add=True)  # no comment, as YAML would have it
        else:
            given.merge_with_dotlist([entry])
        OmegaConf.to_container(given, resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, YAMLError) as error:
        raise ValueError(
            f"{argument} cannot be read as YAML ({reason(error)}); put quotes within quotes, "
            "KEY='\"VALUE\"', around text with signs of YAML's"
        ) from error


def _parts(key: str, value: str) -> list[Any]:
    """The entries of ``a,b``, each as it would be read alone."""
    read = OmegaConf.create({})
    for number, part in enumerate(value.split(",")):
        _merge(read, f"{number}={part}", f"{key}={value}")
    return list(read.values())


def _odd_override(key: str, value: Any) -> Iterator[str]:
    if key == "augmentations":
        if not isinstance(value, ListConfig):
            yield "augmentations must be given whole, as a list of views"
    elif not isinstance(value, DictConfig):
        yield f"{key}={value!r}: must be a mapping with keys of its own"
    else:
        yield from odd_keys(OmegaConf.create({key: value}))


def described(kind: type) -> str:
    """The settings of a dataclass and of those it stands on, as their docstrings have them.

    What a dataclass says of a setting holds for those that stand on it, unless they say it anew.
    """
    docs = (inspect.getdoc(base) for base in kind.__mro__ if "__doc__" in vars(base))
    entries: dict[str, str] = {}
    for doc in docs:
        for entry in re.split(r"\n(?= {4}\S)", (doc or "").partition("Attributes:\n")[2]):
            entries.setdefault(entry.partition(":")[0], entry)
    return "\n".join(entry.rstrip("\n") for entry in entries.values() if entry)
