"""Runs a script of solo-learn's that does not use Hydra, with the pack's methods registered.

    python -m simco_methods.solo_learn main_knn.py ARGS

The script (``main_knn.py``, ``main_umap.py``) runs unchanged. Hydra scripts need nothing of this.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from simco_methods.choice import ABSENT, check_host, solo_learn_problem


def main() -> None:
    """Entry point."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        given = sys.argv[1] if len(sys.argv) > 1 else "nothing"
        sys.exit(f"usage: python -m simco_methods.solo_learn SCRIPT ARGS; {given} is no file")
    sys.argv = sys.argv[1:]
    # As Python does for a script; solo-learn may be nowhere but beside it.
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    program = "simco_methods.solo_learn"
    if os.environ.get("SIMCO_HOST") and check_host(program) == "builtin":
        sys.exit(f"{program}: SIMCO_HOST=builtin is set; unset it")
    problem = solo_learn_problem()
    if problem is not None:
        sys.exit(f"{program}: {problem or ABSENT}")
    from simco_methods.methods import register

    register()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
