#!/usr/bin/env bash
# Table 5: MoCo v2, SimMoCo and SimCo with batches of 64 to 1024.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table table5_batch_size "$@"
