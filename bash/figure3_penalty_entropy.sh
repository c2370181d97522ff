#!/usr/bin/env bash
# Figure 3: entropy of the relative penalty against dictionary size and temperature.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table figure3_penalty_entropy "$@"
