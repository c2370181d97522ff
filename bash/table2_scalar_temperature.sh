#!/usr/bin/env bash
# Table 2: tau_beta with the last iteration's keys and with the current ones.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table table2_scalar_temperature "$@"
