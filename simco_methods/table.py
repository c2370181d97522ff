"""``simco-table``: the paper's tables and figures, from their cells to a report.

simco-table table5_batch_size --scale mini --seeds 5 6 7 --data datasets
simco-table figure2 table2 --dry
simco-table all --scale paper --launcher joblib --jobs 4
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from simco_methods import __version__
from simco_methods.choice import check_host
from simco_methods.files import user_path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simco-table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"simco-table {__version__}")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="TABLE | key=value",
        help="tables by name or the beginning of it, or all; overrides of every cell's config",
    )
    parser.add_argument("--scale", default="paper", help="paper (default), mini or smoke")
    parser.add_argument("--seeds", nargs="+", default=["5"], help="a run for each")
    parser.add_argument(
        "--data", type=user_path, default=Path("datasets"), help="folder of the data sets"
    )
    parser.add_argument("--dataset", help="another data set than the scale's, for all cells")
    parser.add_argument(
        "--out", type=user_path, default=Path("runs/tables"), help="folder of all results"
    )
    parser.add_argument(
        "--only", default="", help="labels of rows and columns to run, separated by commas"
    )
    parser.add_argument(
        "--launcher",
        default="serial",
        help="serial (default), joblib (one machine), slurm, or another of Hydra's launchers",
    )
    parser.add_argument("--jobs", type=int, help="runs at a time, of joblib")
    parser.add_argument("--dry", action="store_true", help="print what would be done, and end")
    return parser


def _arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = _parser()
    arguments = parser.parse_intermixed_args(given)  # overrides may stand behind options
    words = arguments.seeds
    arguments.seeds = [int(word) for word in words if word.isdecimal()]
    arguments.arguments += [word for word in words if not word.isdecimal()]  # behind --seeds
    if not arguments.arguments:
        parser.error("no table is named")
    if not arguments.seeds:
        parser.error("--seeds needs whole numbers")
    return arguments


def main() -> None:
    """Entry point."""
    arguments = _arguments()
    check_host("simco-table")
    from simco_methods.tables.script import Script

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        script = Script(arguments)
        script.announce()
        if not arguments.dry:
            sys.exit(script.run())
    except (ValueError, OSError) as error:
        sys.exit(f"simco-table: {error}")
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        sys.exit(130)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
