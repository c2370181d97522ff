"""What a value may be: each check says what is allowed, or None if the value is fine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, ListConfig

from simco_methods.options import LARGEST

Check = Callable[[Any], str | None]


def number(low: float = -math.inf, high: float = math.inf, open_low: bool = False) -> Check:
    def check(value: Any) -> str | None:
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if real and math.isfinite(value) and low <= value <= high:
            if not (open_low and value == low):
                return None
        if high < math.inf:
            return f"a number from {low:g} to {high:g}" + (f", not {low:g}" if open_low else "")
        return f"a finite number {'above' if open_low else 'of at least'} {low:g}"

    return check


def integer(low: int, high: int = LARGEST) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return None
        if high < LARGEST or (isinstance(value, int) and value > high):
            return f"a whole number from {low} to {high}"
        return f"a whole number of at least {low}"

    return check


def one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else f"one of {', '.join(choices)}"


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def text(value: Any) -> str | None:
    plain = isinstance(value, str) and value.strip() and "\0" not in value
    return None if plain else "text that is not empty"


def file_name(value: Any) -> str | None:
    plain = isinstance(value, str) and value.strip(". ") and not set(value) & set("/\\:\0")
    # With the fingerprint behind it, in a file system whose names have at most 255 bytes.
    plain = plain and len(value.encode(errors="replace")) <= 200
    return None if plain else "text that can name a folder, at most 200 bytes without / \\ and :"


def share_or_count(low: int) -> Check:
    def check(value: Any) -> str | None:
        whole = not integer(low)(value)
        share = isinstance(value, float) and not number(0, 1, open_low=low > 0)(value)
        least = " of at least 1, or a share above 0.0," if low else ", or a share from 0.0"
        return None if whole or share else f"a number of batches{least} to 1.0"

    return check


def numbers(count: int, open_low: float = -math.inf) -> Check:
    entry = number(open_low, open_low=True)

    def check(value: Any) -> str | None:
        fits = isinstance(value, ListConfig) and len(value) == count
        if fits and not any(entry(x) for x in value):
            return None
        return f"a list of {count} numbers" + (f" above {open_low:g}" if open_low == 0 else "")

    return check


def mapping(value: Any) -> str | None:
    return None if isinstance(value, DictConfig) else "a mapping of names to values"


def anything(value: Any) -> str | None:
    return None


def optional(check: Check) -> Check:
    def checked(value: Any) -> str | None:
        allowed = None if value is None else check(value)
        return f"{allowed}, or null" if allowed else None

    checked.of = check
    return checked


def fraction(value: Any) -> str | None:
    share = isinstance(value, float) and 0 < value < 1
    return None if share or value == -1 else "-1 for all, or a share between 0 and 1"


def as_list(value: Any) -> list[Any]:
    """A list's entries; anything else is a list of one."""
    return list(value) if isinstance(value, list | ListConfig) else [value]


def whole_numbers(value: Any) -> str | None:
    fits = isinstance(value, ListConfig) and not any(integer(1)(entry) for entry in value)
    return None if fits else "a list of whole numbers of at least 1"


def exactly(only: int) -> Check:
    return lambda value: None if type(value) is int and value == only else str(only)


def each(check: Check) -> Check:
    """Holds a list that is not empty, or one entry, to a check of its entries."""

    def checked(value: Any) -> str | None:
        entries = as_list(value)
        faults = [fault for entry in entries if (fault := check(entry))]
        return (f"a list, each {faults[0]}" if faults else None) if entries else "a list of some"

    checked.entry = check
    return checked


def allows_null(check: Check) -> bool:
    """Whether the value may be None."""
    return hasattr(check, "of")


def is_text(check: Check) -> bool:
    """Whether the value is free text, such as a path: it is taken as it was typed."""
    return getattr(check, "of", check) in (text, file_name)


def is_texts(check: Check) -> bool:
    """Whether the value is a list of free texts, such as paths."""
    return is_text(getattr(getattr(check, "of", check), "entry", None))
