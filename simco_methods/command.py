"""What the commands ``PROGRAM THING ... [key=value ...]`` have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from simco_methods.choice import check_host


def run_command(
    program: str,
    doc: str,
    load: Callable[[], tuple[type, Callable[..., Any]]],
    things: Sequence[str] = ("ENCODER",),
) -> None:
    """Entry point of a command: its usage, its errors as one message, its exit status.

    Args:
        program: its name.
        doc: of its module: a title, and examples from the third line on.
        load: imports the dataclass of its settings (see :mod:`simco_methods.settings`) and the
            function that is called with the things and the settings.
        things: what is named before the settings.
    """
    arguments = sys.argv[1:]
    usage = f"usage: {program} {' '.join(things)} [key=value ...]"
    if not arguments or arguments[0] in ("-h", "--help"):
        from simco_methods.settings import described

        examples = doc.split("\n", 2)[2].strip("\n")
        text = f"{usage}\n\n{examples}\n\n{described(load()[0])}"
        print(text, file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no Unicode
    named, given = arguments[: len(things)], arguments[len(things) :]
    try:
        check_host(program)
        from simco_methods.settings import parse_settings

        if len(named) < len(things):
            missing = ", ".join(things[len(named) :])
            raise ValueError(f"{missing} is missing\n{usage}")
        kind, function = load()
        function(*named, parse_settings(program, kind, given))
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"{program}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
