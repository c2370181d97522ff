#!/usr/bin/env bash
# Table 1: recent, random and earliest keys of the queue.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table table1_key_order "$@"
