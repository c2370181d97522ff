"""Numbers of things in words, and texts that fit."""

from __future__ import annotations


def count(number: int, thing: str, things: str = "") -> str:
    """``1 epoch``, ``1,000 epochs``; ``things`` is a plural that does not end in s."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def shortened(text: str, letters: int) -> str:
    """A text without its middle where it is longer than ``letters``."""
    if len(text) <= letters:
        return text
    head = (letters - 1) // 3
    return f"{text[:head]}…{text[head + 1 - letters :]}"
