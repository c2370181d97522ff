"""Text given on a command line, taken as it was typed."""

from __future__ import annotations

import os
import re

_QUOTED = re.compile(r"""(['"])((?:(?!\1)[^\\]|\\.)*)\1""", re.DOTALL)
_ENTRY = re.compile(r"""\s*('[^']*'|"[^"]*"|[^,]*?)\s*,""", re.DOTALL)
_REFERENCE = re.compile(r"(\\*)\$\{")


def as_text(value: str, optional: bool = False) -> str | None:
    """A text as it was typed, without the one pair of quotes around it that it may have.

    Args:
        value: what stands behind the ``=``. What is a path on this disk is not changed.
        optional: whether ``null`` stands for None.
    """
    if optional and value.lower() == "null":
        return None
    quoted = _QUOTED.fullmatch(value)
    if quoted is None or os.path.lexists(value):
        return value
    quote, inner = quoted.groups()
    return inner.replace(f"\\{quote}", quote)


def as_texts(value: str, optional: bool = False) -> list[str] | None:
    """The entries of ``a,b`` or ``[a,b]``, each :func:`as_text`; a path on this disk is one."""
    if optional and value.lower() == "null":
        return None
    if value.startswith("[") and value.endswith("]") and not os.path.lexists(value):
        value = value[1:-1].strip()
        if not value:
            return []
    return [as_text(entry) for entry in split_at_commas(value)]


def split_at_commas(value: str) -> list[str]:
    """The entries of ``a,b``; quotes keep the commas of one, and a path on this disk is one."""
    if "," not in value or os.path.lexists(value) or _QUOTED.fullmatch(value):
        return [value]
    return _ENTRY.findall(f"{value},")


def literal(text: str) -> str:
    """A text for OmegaConf, in which ``${`` refers to nothing."""
    return _REFERENCE.sub(lambda found: rf"{found[1] * 2}\${{", text)


def config_text(value: str, optional: bool = False) -> str | None:
    """:func:`as_text` for OmegaConf: ``${KEY}`` refers to a key unless it is of a path on disk."""
    text = as_text(value, optional)
    return literal(text) if text is not None and os.path.lexists(text) else text
