#!/usr/bin/env bash
# Table 6: 200, 400 and 800 epochs.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table table6_epochs "$@"
