#!/usr/bin/env bash
# Lint and tests, in an own environment, by two processes. Arguments are passed to pytest (-n 0: one).
#
#   bash bash/test.sh [--stack today|solo-learn-pins|both] [pytest arguments]
#
# --stack: today's releases (the default, .venv), the versions that solo-learn pins
# (.venv-solo-learn-pins: lightning 2.1.2, the last torchmetrics below 0.12), or one after the other.
# SOLO_LEARN: a checkout of solo-learn, to run the suite on its classes and with its own scripts
# (pytest -m solo_learn are the tests that need it). Without it the host is the built-in one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

stack=today
if [ "${1:-}" = --stack ]; then
  stack=${2:-}
  shift 2 || shift
fi
case $stack in
  today) stacks=("") ;;
  solo-learn-pins) stacks=(solo-learn-pins) ;;
  both) stacks=("" solo-learn-pins) ;;
  *) echo "--stack $stack: must be today, solo-learn-pins or both" >&2; exit 2 ;;
esac
for SIMCO_STACK in "${stacks[@]}"; do (
  EXTRAS=test${SOLO_LEARN:+,umap,wandb,h5} source "$here/bash/setup.sh"
  cd "$here"
  python -m pip list 2>/dev/null | grep -E '^(torch|torchvision|lightning|torchmetrics|timm) ' | xargs
  ruff check .
  ruff format --check .
  python -m pytest -n 2 --dist loadfile "$@"
); done
