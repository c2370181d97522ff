"""Which base classes the methods stand on: solo-learn's if it is there, else the built-in ones.

``SIMCO_HOST=solo-learn`` or ``builtin`` forces the choice; anything else lets the pack choose.

Attributes:
    HOST: "solo-learn" or "builtin".
    BaseMethod, BaseMomentumMethod: the host's base classes.
    LeanMethod, LeanMomentumMethod: the same with the steps of :mod:`simco_methods.host.steps`; what
        the methods of the pack derive from. On the built-in host they are the base classes.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import warnings
from pathlib import Path

from simco_methods.backbones import PACK_BACKBONES

CHOICES = ("solo-learn", "builtin")
_HOW_TO = (
    "The pack needs solo-learn 1.0.6 or later (its repository's main line, with the DictConfig "
    "API; PyPI has only 1.0.2) and what that imports (the extra simco-methods[solo]), or "
    "SIMCO_HOST=builtin to train without it."
)


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
        return f"{_version()} cannot be imported ({type(error).__name__}: {error}). {_HOW_TO}"
    if not hasattr(base, "add_and_assert_specific_cfg"):
        return f"{_version()} has the old argparse API. {_HOW_TO}"
    return None


def _version() -> str:
    try:
        return f"solo-learn {importlib.metadata.version('solo-learn')}"
    except importlib.metadata.PackageNotFoundError:
        return f"the solo-learn at {importlib.util.find_spec('solo').submodule_search_locations[0]}"


def _refused(message: str) -> ImportError:
    return ImportError(message, name="SIMCO_HOST")


def choose_host() -> str:
    """Reads ``SIMCO_HOST`` and looks for solo-learn.

    Raises:
        ImportError: a misspelt ``SIMCO_HOST``, or solo-learn demanded and not usable. Its ``name``
            is ``SIMCO_HOST``.
    """
    wanted = os.environ.get("SIMCO_HOST", "")
    if wanted and wanted not in CHOICES:
        raise _refused(f"SIMCO_HOST={wanted!r} is none of {', '.join(CHOICES)}; unset it to choose")
    if wanted == "builtin":
        return "builtin"
    problem = solo_learn_problem()
    if problem is None:
        return "solo-learn"
    if wanted == "solo-learn":
        raise _refused(
            f"SIMCO_HOST=solo-learn, but {problem or f'no solo-learn is on the path. {_HOW_TO}'}"
        )
    if problem:
        warnings.warn(f"Using the built-in host: {problem}", stacklevel=3)
    return "builtin"


HOST = choose_host()
if HOST == "solo-learn":
    from simco_methods.host.solo_learn import (
        BaseMethod,
        BaseMomentumMethod,
        LeanMethod,
        LeanMomentumMethod,
    )
else:
    from simco_methods.host.builtin import BaseMethod, BaseMomentumMethod

    LeanMethod, LeanMomentumMethod = BaseMethod, BaseMomentumMethod

for _name, _backbone in PACK_BACKBONES.items():
    BaseMethod._BACKBONES.setdefault(_name, _backbone)

__all__ = ["HOST", "BaseMethod", "BaseMomentumMethod", "LeanMethod", "LeanMomentumMethod"]
