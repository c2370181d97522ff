"""What the commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def host_errors_named(program: str) -> Iterator[None]:
    """Ends the program without a traceback where the host that ``SIMCO_HOST`` names is refused.

    To be put around the first import of the host.
    """
    try:
        yield
    except ImportError as error:
        if error.name != "SIMCO_HOST":
            raise
        sys.exit(f"{program}: {error}")
