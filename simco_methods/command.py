"""What the commands ``PROGRAM THING ... [key=value ...]`` have in common."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pkgutil import resolve_name

from simco_methods import __version__
from simco_methods.choice import check_host

HELP = ("-h", "--help")


def run_command(
    program: str,
    doc: str,
    settings: str,
    run: str,
    things: Sequence[str] = ("ENCODER",),
) -> None:
    """Entry point of a command: its usage, its errors as one message, its exit status.

    Args:
        program: its name.
        doc: of its module: a title, and examples from the third line on.
        settings: ``module:name`` of the dataclass of its settings, see
            :mod:`simco_methods.settings`; the module must not load torch: help and a misspelt
            setting are said at once.
        run: ``module:name`` of what is called with the things and the settings.
        things: what is named beside the settings.
    """
    arguments = sys.argv[1:]
    try:
        from simco_methods.settings import described, parse_settings, split_arguments, usage

        kind = resolve_name(settings)
        if not arguments or {*HELP} & {*arguments}:
            examples = doc.split("\n", 2)[2].strip("\n")
            text = f"{usage(program, things)}\n\n{examples}\n\n{described(kind)}"
            print(text, file=sys.stdout if arguments else sys.stderr)
            sys.exit(0 if arguments else 2)
        if "--version" in arguments:
            print(program, __version__)
            sys.exit(0)
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no Unicode
        named, given = split_arguments(program, kind, things, arguments)
        parsed = parse_settings(program, kind, given)
        from simco_methods.progress import LINE_SECONDS, Progress

        with Progress("loading PyTorch", patience=LINE_SECONDS):
            check_host(program)
            import simco_methods.encoder.loading  # noqa: F401

            function = resolve_name(run)
        function(*named, parsed)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"{program}: {error}")
    except (MemoryError, RuntimeError) as error:
        reason = memory_fault(error)
        if reason is None:
            raise
        advice = ["end other programs that hold memory, and run it again"]
        if "CUDA" in reason and hasattr(kind, "device"):
            advice.insert(0, "set device=cpu")
        if hasattr(kind, "batch_size"):
            advice.insert(0, "lower batch_size or num_workers")
        sys.exit(f"{program}: out of memory ({reason}): {', or '.join(advice)}")
    except KeyboardInterrupt:
        sys.exit(130)


# As torch says it on CPUs and GPUs, cuBLAS and cuDNN, and a loader whose worker the system ended.
_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "_ALLOC_FAILED",
    "killed by signal: Killed",
    "killed by signal: Bus error",
    "out of shared memory",
)


def memory_fault(error: BaseException) -> str | None:
    """What an error says, in a line, if it is that memory is short; else None.

    Args:
        error: of torch, numpy, the system, or the worker of a loader.
    """
    # Of a worker that was ended a loader says so in the cause.
    lines = [line.strip() for line in f"{error}\n{error.__cause__ or ''}".splitlines()]
    said = [line for line in lines if any(text in line for text in _NO_MEMORY)]
    if not said and not isinstance(error, MemoryError):
        return None
    line = next(iter(said or lines)) or type(error).__name__
    line = line.rpartition("DefaultCPUAllocator: ")[2].removeprefix("RuntimeError: ")
    return (line if len(line) < 200 else line[:200].rpartition(". ")[0]).rstrip(". ")
