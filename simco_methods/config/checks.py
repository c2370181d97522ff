"""What a value may be: each check says what is allowed, or None if the value is fine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, ListConfig

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


def integer(low: int) -> Check:
    def check(value: Any) -> str | None:
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= low
        return None if whole else f"a whole number of at least {low}"

    return check


def one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else f"one of {', '.join(choices)}"


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def text(value: Any) -> str | None:
    return None if isinstance(value, str) and value.strip() else "text that is not empty"


def file_name(value: Any) -> str | None:
    plain = isinstance(value, str) and value.strip(". ") and not set(value) & set("/\\:")
    return None if plain else "text that can name a folder, without / \\ and :"


def share_or_count(value: Any) -> str | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    share = isinstance(value, float) and 0 <= value <= 1
    return None if whole or share else "a number of batches, or a share from 0.0 to 1.0"


def numbers(value: Any) -> str | None:
    is_list = isinstance(value, ListConfig)
    return None if is_list and not any(number()(x) for x in value) else "a list of numbers"


def mapping(value: Any) -> str | None:
    return None if isinstance(value, DictConfig) else "a mapping of names to values"


def anything(value: Any) -> str | None:
    return None


def optional(check: Check) -> Check:
    def checked(value: Any) -> str | None:
        allowed = None if value is None else check(value)
        return f"{allowed}, or null" if allowed else None

    return checked


def fraction(value: Any) -> str | None:
    share = isinstance(value, float) and 0 < value < 1
    return None if share or value == -1 else "-1 for all, or a share between 0 and 1"


def as_list(value: Any) -> list[Any]:
    """A list's entries; anything else is a list of one."""
    return list(value) if isinstance(value, list | ListConfig) else [value]


def each(check: Check) -> Check:
    """Holds a list that is not empty, or one entry, to a check of its entries."""

    def checked(value: Any) -> str | None:
        entries = as_list(value)
        faults = [fault for entry in entries if (fault := check(entry))]
        return (f"a list, each {faults[0]}" if faults else None) if entries else "a list of some"

    return checked
