#!/usr/bin/env bash
# Figure 2: accuracy against the dictionary size of each component.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table figure2_dictionary_size "$@"
