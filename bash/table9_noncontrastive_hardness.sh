#!/usr/bin/env bash
# Table 9: SimSiam and BYOL with and without the weight by hardness.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table table9_noncontrastive_hardness "$@"
