"""The keys ``analysis.*``: what is measured while a method trains."""

from __future__ import annotations

from typing import Any

from simco_methods.config.checks import Check, each, flag, integer, number, optional, text

TEMPERATURES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

DURING: dict[str, Check] = {
    "enabled": flag,
    "every_n_steps": integer(1),  # batches
    "keys": integer(64),  # of the dictionary that is kept for it
    "sizes": optional(each(integer(2))),  # null: powers of 4 from 64 to keys
    "temperatures": each(number(0, open_low=True)),
    "folder": optional(text),
}
DURING_DEFAULTS: dict[str, Any] = {
    "enabled": False,
    "every_n_steps": 50,
    "keys": 4096,
    "sizes": None,
    "temperatures": list(TEMPERATURES),
    "folder": None,
}
