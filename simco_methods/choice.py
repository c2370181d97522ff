"""Which host it is, solo-learn or the built-in one: decided before anything heavy is loaded."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import warnings
from pathlib import Path

CHOICES = ("solo-learn", "builtin")
_NEEDED = (
    "Needed is solo-learn 1.0.6 or later (its repository's main line, with the DictConfig API; "
    "PyPI has only 1.0.2) and what that imports (the extra simco-methods[solo])"
)
_OR_ELSE = "; SIMCO_HOST=builtin trains without it"

ABSENT = f"no solo-learn is on the path. {_NEEDED}"


@functools.cache
def solo_learn_problem() -> str | None:
    """None if a usable solo-learn can be imported, "" if there is none, else what is wrong."""
    spec = importlib.util.find_spec("solo")
    # Looked for on disk: to ask for the spec of solo.methods would import solo, which may fail.
    folders = (spec and spec.submodule_search_locations) or []
    if not any(Path(folder, "methods").is_dir() for folder in folders):
        return ""  # none, or another package of that name
    try:
        with warnings.catch_warnings():
            # A page of them on today's timm and torch, about nothing that a user could change.
            warnings.simplefilter("ignore")
            base = importlib.import_module("solo.methods.base").BaseMethod
    except Exception as error:
        return f"{_version()} cannot be imported ({type(error).__name__}: {error}). {_NEEDED}"
    if not hasattr(base, "add_and_assert_specific_cfg"):
        return f"{_version()} has the old argparse API. {_NEEDED}"
    return None


def _version() -> str:
    try:
        return f"solo-learn {importlib.metadata.version('solo-learn')}"
    except importlib.metadata.PackageNotFoundError:
        return f"the solo-learn at {importlib.util.find_spec('solo').submodule_search_locations[0]}"


@functools.cache
def choose_host() -> str:
    """Reads ``SIMCO_HOST`` and looks for solo-learn: "solo-learn" or "builtin".

    Raises:
        ImportError: a misspelt ``SIMCO_HOST``, or solo-learn demanded and not usable.
    """
    wanted = os.environ.get("SIMCO_HOST", "")
    if wanted and wanted not in CHOICES:
        raise ImportError(
            f"SIMCO_HOST={wanted!r} is none of {', '.join(CHOICES)}; unset it to choose"
        )
    if wanted == "builtin":
        return "builtin"
    problem = solo_learn_problem()
    if problem is None:
        return "solo-learn"
    if wanted == "solo-learn":
        raise ImportError(f"SIMCO_HOST=solo-learn, but {problem or ABSENT}{_OR_ELSE}")
    if problem:
        warnings.warn(f"using the built-in host: {problem}{_OR_ELSE}", stacklevel=2)
    return "builtin"


def check_host(program: str) -> str:
    """:func:`choose_host` for a command: what it warns of is one line, and so is what ends it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return choose_host()
        except ImportError as error:
            sys.exit(f"{program}: {error}")
        finally:
            for warning in caught:
                print(f"{program}: {warning.message}", file=sys.stderr)
