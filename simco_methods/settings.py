"""``key=value`` settings of a command: a dataclass says which there are and what each may be."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from simco_methods.arguments import as_text, as_texts, config_text
from simco_methods.config.checks import Check, allows_null, as_list, is_text, is_texts
from simco_methods.config.keys import RUN
from simco_methods.config.walk import nearest, reason, shown, walk

Settings = TypeVar("Settings")

_SETTING = re.compile(r"([A-Za-z_]\w*)[\w.\[\]]*=", re.ASCII)


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


def usage(program: str, things: Sequence[str]) -> str:
    """The line that says how a command is called."""
    return f"usage: {program} {' '.join(things)} [key=value ...]"


def split_arguments(
    program: str, kind: type, things: Sequence[str], arguments: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Tells what a command names from its ``key=value`` settings, in any order.

    A path on this disk with a ``=`` in it is no setting, unless its beginning is one's name.

    Args:
        program: what to call the command.
        kind: the dataclass of its settings.
        things: what has to be named.
        arguments: of the command.

    Returns:
        What is named, and the settings.

    Raises:
        ValueError: options, which it has none of; too few or too many that are no settings.
    """
    known = [*_fields(kind), *getattr(kind, "CONFIG", ())]
    named: list[str] = []
    given: list[str] = []
    faults: list[str] = []
    for argument in arguments:
        is_path = os.path.lexists(argument)
        key = _SETTING.match(argument)
        if key and (key[1] in known or not is_path):
            given.append(argument)
        elif argument.startswith("-") and not is_path:
            name = argument.lstrip("-").partition("=")[0].replace("-", "_")
            near = nearest(name, dict.fromkeys(known))
            meant = f": write {near}=VALUE" if near else ""
            faults.append(f"{argument} is no option of {program}{meant}")
        else:
            named.append(argument)
    if not faults:
        pairs = zip(things, named, strict=False)
        empty = [f"{thing} is empty" for thing, name in pairs if not name.strip()]
        missing = [f"{thing} is missing" for thing in things[len(named) :]]
        missing += [usage(program, things)] if missing else []
        extra = [f"{text} is not of the form key=value" for text in named[len(things) :]]
        faults = empty + missing + extra
    if faults:
        raise ValueError("\n".join(faults))
    return named, given


def parse_settings(program: str, kind: type[Settings], arguments: Sequence[str]) -> Settings:
    """Reads ``key=value`` arguments.

    Text is taken as it was typed, see :mod:`simco_methods.arguments`; other values are YAML.

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
    fields = _fields(kind)
    config: Sequence[str] = getattr(kind, "CONFIG", ())
    given = OmegaConf.create({})
    texts: dict[str, Any] = {}  # of the settings that are no YAML
    for argument in arguments:
        key, _, value = argument.partition("=")
        check = fields[key]["check"] if key in fields else None
        if check and is_text(check):
            texts[key] = as_text(value, allows_null(check))
        elif check and is_texts(check):
            texts[key] = as_texts(value, allows_null(check))
        else:
            _merge(given, argument, argument)
    plain: dict[str, Any] = {}
    for key, value in [*given.items(), *texts.items()]:
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
        known = fields[key]
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


def _fields(kind: type) -> dict[str, Mapping[str, Any]]:
    """Name and metadata of each setting."""
    return {f.name: f.metadata for f in dataclasses.fields(kind) if "check" in f.metadata}


def _merge(given: DictConfig, entry: str, argument: str) -> None:
    key, _, value = entry.partition("=")
    check = RUN.get(key) if "." in key else None
    text = check is not None and is_text(check)
    try:
        if text:
            value = config_text(value, allows_null(check))
            OmegaConf.update(given, key, value, force_add=True)
        else:
            given.merge_with_dotlist([entry])
        OmegaConf.to_container(given, resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, YAMLError) as error:
        if text:
            raise ValueError(f"{argument}: {reason(error)}") from error
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
        yield from walk(OmegaConf.create({key: value}), RUN)


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
