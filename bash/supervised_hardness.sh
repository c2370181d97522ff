#!/usr/bin/env bash
# Supervised training with its anchor weights as they are and made equal.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table supervised_hardness "$@"
