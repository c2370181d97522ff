#!/usr/bin/env bash
# Lint and tests, in an own environment. Arguments are passed to pytest.
#
# The suite runs under the host that is there: put a checkout of solo-learn on PYTHONPATH to run it
# under solo-learn's classes, with its own scripts (pytest -m solo_learn are the tests that need it).
#
#   bash bash/test.sh [pytest arguments]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
EXTRAS=test source "$here/bash/setup.sh"
cd "$here"
ruff check .
ruff format --check .
python -m pytest "$@"
