"""Arguments as people write them, for Hydra; and in a line what is wrong with them."""

from __future__ import annotations

import importlib.resources
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from yaml import MarkedYAMLError

from simco_methods.arguments import config_text, split_at_commas
from simco_methods.config.checks import allows_null, is_text
from simco_methods.config.keys import RUN
from simco_methods.config.walk import nearest, question

GROUPS = ("recipe", "dataset", "contrast", "augmentations")  # of solo_configs

_PATH, _NAME, _DIR = ("--config-path", "-cp"), ("--config-name", "-cn"), ("--config-dir", "-cd")
_MULTIRUN = ("--multirun", "-m")
# Hydra's options that have a value, and those that have none.
_VALUED = (*_PATH, *_NAME, *_DIR, "--package", "-p", "--cfg", "-c", "--experimental-rerun")
_FLAGS = (*_MULTIRUN, "--run", "-r", "--resolve", "--hydra-help", "--shell-completion", "-sc")
_INFO = ("--info", "-i")  # has a value or none
_INFOS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


@dataclass(frozen=True)
class Arguments:
    """The arguments of a command that is Hydra's, options and overrides in any order.

    Attributes:
        options: name and value of each, None where it has none.
        overrides: as they were typed.
        faults: what is neither, a line each.
    """

    options: list[tuple[str, str | None]]
    overrides: list[str]
    faults: list[str]

    @classmethod
    def read(cls, arguments: Sequence[str]) -> Arguments:
        """Tells options from overrides."""
        read = cls([], [], [])
        left = list(arguments)
        while left:
            argument = left.pop(0)
            name, equals, value = argument.partition("=")
            if not argument.startswith("-"):
                read.overrides.append(argument)
            elif name in _VALUED and (equals or left):
                read.options.append((name, value if equals else left.pop(0)))
            elif name in _VALUED:
                read.faults.append(f"{name} needs a value")
            elif name in _INFO:
                known = left and left[0] in _INFOS
                read.options.append((name, value or (left.pop(0) if known else "all")))
            elif argument in _FLAGS:
                read.options.append((argument, None))
            else:
                key = name.lstrip("-").replace("-", "_")
                meant = f"; a setting has no dashes: {key}={value or 'VALUE'}" if key else ""
                near = question(nearest(name, dict.fromkeys((*_VALUED, *_FLAGS, *_INFO))))
                read.faults.append(f"{argument} is no option{near or meant}")
        return read

    def option(self, names: Sequence[str]) -> str | None:
        """The value of an option that has one."""
        return next((value for name, value in self.options if name in names), None)

    @property
    def multirun(self) -> bool:
        """Whether it is a sweep."""
        by_option = any(name in _MULTIRUN for name, _ in self.options)
        return by_option or "hydra.mode=MULTIRUN" in self.overrides

    def for_hydra(self) -> list[str]:
        """Overrides first: Hydra would not find those that stand on both sides of an option."""
        found = [hydra_override(text, self.multirun) for text in self.overrides]
        for name, value in self.options:
            if name in (*_PATH, *_DIR) and Path(value).is_dir():
                value = str(Path(value).resolve())  # Hydra would look beside the command's file
            found += [name] if value is None else [name, value]
        return found


def hydra_override(text: str, multirun: bool = False) -> str:
    """``key=value`` as people write it, for Hydra.

    It sets keys that the YAML does not mention, which Hydra would refuse with its own message; a
    misspelt one reaches the check that names the nearest valid key. Config groups and Hydra's own
    keys stay. A value that is text is taken as it was typed, and so is put in quotes for Hydra; in
    a sweep a comma in it stands between values, unless it is in quotes or of a path on this disk.

    Args:
        text: as it was typed.
        multirun: whether it is of a sweep.
    """
    key, equals, value = text.partition("=")
    check = RUN.get(key.lstrip("+"))
    if equals and check and is_text(check) and not (multirun and _is_sweep(text)):
        entries = split_at_commas(value) if multirun else [value]
        given = (config_text(entry, allows_null(check)) for entry in entries)
        quoted = ("null" if entry is None else quoted_value(entry) for entry in given)
        text = f"{key}={','.join(quoted)}"
    plain = equals and key[:1].isalpha() and "@" not in key
    if plain and key.split("/")[0] not in GROUPS and key.split(".")[0] != "hydra":
        return f"++{text}"
    return text


def quoted_value(text: str) -> str:
    """A text in Hydra's grammar."""
    escaped = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text)
    return f"'{escaped}'"


def _is_sweep(text: str) -> bool:
    value = text.partition("=")[2]
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        return False
    return override.is_sweep_override() and not os.path.lexists(value)


def check_arguments(arguments: Arguments) -> None:
    """Holds the arguments, as given, to what can be composed.

    Raises:
        ValueError: everything that is wrong with them, a line each: options that there are not, a
            config that is not there, with those that are like it, and overrides that cannot be
            read.
    """
    faults = [*arguments.faults, *_odd_config(arguments)]
    faults += [f for text in arguments.overrides for f in _odd_override(text, arguments.multirun)]
    if faults:
        raise ValueError("\n  - ".join(["the arguments do not fit:", *faults]))


def composing_fault(error: Exception, arguments: Arguments, task: str) -> str | None:
    """Why a config could not be composed, in a line.

    Args:
        error: what Hydra raised; it does so with the environment's ``HYDRA_FULL_ERROR=1``.
        arguments: of the command.
        task: name of the function that gets the config.

    Returns:
        None if the config was composed, and the error is the function's.
    """
    if any(frame.name == task for frame in traceback.extract_tb(error.__traceback__)):
        return None
    given = " ".join(arguments.overrides)
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        return f"{mark.name}, line {mark.line + 1}: {error.problem or error.context}"
    if isinstance(error, MissingConfigException):
        options = error.options or []
        name = Path(error.missing_cfg_file or "").stem
        there = f"; there are {', '.join(options)}" if options else ""
        return _line(error) + _did_you_mean(name, options) + there
    if isinstance(error, HydraException):
        cause = _line(error.__cause__) if error.__cause__ else ""
        said = _line(error)
        for typed in arguments.overrides:
            said = said.replace(hydra_override(typed, arguments.multirun), typed)
        said = said.rstrip(".") + (f": {cause}" if cause else "")
        keys = [typed.lstrip("+~").split("=")[0] for typed in arguments.overrides]
        named = not keys or any(key in said for key in keys)
        return said if named else f"{said} ({given})"
    return f"no config can be composed of {given} ({type(error).__name__}: {_line(error)})"


def _odd_config(arguments: Arguments) -> Iterator[str]:
    path, name = arguments.option(_PATH), arguments.option(_NAME)
    known = set(_config_names(importlib.resources.files("solo_configs")))
    if path is not None and "://" not in path:
        if not Path(path).is_dir():
            yield f"--config-path {path}: there is no such folder"
            return
        known |= set(_config_names(Path(path)))
    elsewhere = (path and "://" in path) or arguments.option(_DIR) is not None
    plain = name and name.removesuffix(".yaml").removesuffix(".yml")
    if plain and plain not in known and not elsewhere:
        yield f"--config-name {name}: there is no such config{_did_you_mean(plain, known)}"
    file = Path(path or "", f"{plain}.yaml")
    if file.is_file():
        try:
            file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            yield f"{file}: is no text in UTF-8 ({error.reason} at byte {error.start})"


def _config_names(folder: Any, prefix: str = "") -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir() and prefix.count("/") < 3:
            yield from _config_names(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith((".yaml", ".yml")):
            yield prefix + entry.name.rsplit(".", 1)[0]


def _odd_override(text: str, multirun: bool) -> Iterator[str]:
    try:
        text.encode()
    except UnicodeEncodeError:
        yield f"{text}: is no text in UTF-8, which config.yaml is; rename it, or set a link to it"
        return
    try:
        override = OverridesParser.create().parse_override(hydra_override(text, multirun))
    except HydraException as error:
        lines = [line.strip() for line in str(error).splitlines()]
        said = [line for line in lines if line.strip("^ ") and "rror parsing" not in line]
        yield f"{text}: {said[0] if said else 'cannot be read'}"
        return
    key = override.key_or_group
    if not key:
        yield f"{text}: has no key"
    first, _, rest = key.partition(".")
    group = key.split("/")[0].split("@")[0]
    if group in _folders() and not (override.is_delete() or override.is_sweep_override()):
        value = override.value()
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str) for name in names):
            keys = "; a view's keys are augmentations.0.KEY" if key == "augmentations" else ""
            yield f"{text}: must name a file of the configs' folder {group}{keys}"
    elif first == "augmentations" and not rest.split(".")[0].isdecimal():
        yield f"{text}: augmentations is a list; its first view's keys are augmentations.0.KEY"


def _folders() -> set[str]:
    """What Hydra takes for groups, whose overrides name files."""
    root = importlib.resources.files("solo_configs")
    return {entry.name for entry in root.iterdir() if entry.is_dir()} | {"hydra"}


def _did_you_mean(name: str, known: Any) -> str:
    close = get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
