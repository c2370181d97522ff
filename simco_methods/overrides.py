"""Arguments as people write them, for Hydra; and in a line what is wrong with them."""

from __future__ import annotations

import importlib.resources
import traceback
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from yaml import MarkedYAMLError

GROUPS = ("recipe", "dataset", "contrast", "augmentations")  # of solo_configs

_PATH, _NAME = ("--config-path", "-cp"), ("--config-name", "-cn")
# Hydra's options that have a value.
_VALUED = (*_PATH, *_NAME, "--config-dir", "-cd", "--package", "-p", "--cfg", "-c")
_VALUED += ("--experimental-rerun",)


def accept_every_key(arguments: list[str]) -> list[str]:
    """Lets ``key=value`` set keys that the YAML does not mention.

    Hydra would refuse them with its own message; this way a valid key works and a misspelt one
    reaches the check that names the nearest valid key. Config groups and Hydra's own keys stay.
    """
    accepted: list[str] = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        plain = "=" in argument and key[:1].isalpha() and "@" not in key
        if plain and key.split("/")[0] not in GROUPS and key.split(".")[0] != "hydra":
            argument = f"++{argument}"
        # Hydra would look beside this file.
        elif accepted and accepted[-1] in _PATH and Path(argument).is_dir():
            argument = str(Path(argument).resolve())
        elif key in _PATH and value and Path(value).is_dir():
            argument = f"{key}={Path(value).resolve()}"
        accepted.append(argument)
    return accepted


def check_arguments(arguments: list[str]) -> None:
    """Holds the arguments, as given, to what can be composed.

    Raises:
        ValueError: everything that is wrong with them, a line each: a config that is not there,
            with those that are like it, and overrides that cannot be read.
    """
    options, overrides = _split(arguments)
    faults = [*_odd_config(options), *(f for text in overrides for f in _odd_override(text))]
    if faults:
        raise ValueError("\n  - ".join(["the arguments do not fit:", *faults]))


def composing_fault(error: Exception, arguments: list[str], task: str) -> str | None:
    """Why a config could not be composed, in a line.

    Args:
        error: what Hydra raised; it does so with the environment's ``HYDRA_FULL_ERROR=1``.
        arguments: of the command, as given.
        task: name of the function that gets the config.

    Returns:
        None if the config was composed, and the error is the function's.
    """
    if any(frame.name == task for frame in traceback.extract_tb(error.__traceback__)):
        return None
    given = " ".join(arguments)
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
        said = _line(error).replace("++", "").rstrip(".") + (f": {cause}" if cause else "")
        keys = [argument.lstrip("+~").split("=")[0] for argument in arguments]
        named = not keys or any(key in said for key in keys)
        return said if named else f"{said} ({given})"
    return f"no config can be composed of {given} ({type(error).__name__}: {_line(error)})"


def _split(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    overrides: list[str] = []
    expected: str | None = None
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if expected:
            options[expected], expected = argument, None
        elif argument in _VALUED:
            expected = argument
        elif name in _VALUED and equals:
            options[name] = value
        elif not argument.startswith("-"):
            overrides.append(argument)
    return options, overrides


def _odd_config(options: dict[str, str]) -> Iterator[str]:
    path, name = (
        next((options[key] for key in keys if key in options), None) for keys in (_PATH, _NAME)
    )
    known = set(_config_names(importlib.resources.files("solo_configs")))
    if path is not None and "://" not in path:
        if not Path(path).is_dir():
            yield f"--config-path {path}: there is no such folder"
            return
        known |= set(_config_names(Path(path)))
    elsewhere = (path and "://" in path) or {"--config-dir", "-cd"} & set(options)
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


def _odd_override(text: str) -> Iterator[str]:
    try:
        override = OverridesParser.create().parse_override(text)
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
