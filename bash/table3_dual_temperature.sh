#!/usr/bin/env bash
# Table 3: small and large tau_alpha and tau_beta.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table table3_dual_temperature "$@"
