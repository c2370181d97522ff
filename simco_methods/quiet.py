"""Calls into other libraries without what they warn of."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings of other libraries, which a user could change nothing about."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextmanager
def without_logged(part: str) -> Iterator[None]:
    """Without what is logged to the root logger and has ``part`` in it."""

    def kept(record: logging.LogRecord) -> bool:
        return part not in record.getMessage()

    root = logging.getLogger()
    root.addFilter(kept)
    try:
        yield
    finally:
        root.removeFilter(kept)
