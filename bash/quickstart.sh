#!/usr/bin/env bash
# Trains MoCo v2, SimMoCo and SimCo on real handwritten digits: minutes on a laptop, no download of
# data. Ends with a table and a figure in OUT (default runs/quickstart). Running it again with the
# same OUT shows what is there; arguments are passed to simco-pretrain.
#
#   bash bash/quickstart.sh [overrides]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here/bash/setup.sh"
out=${OUT:-runs/quickstart}

runs=()
for method in mocov2 simmoco simco; do
  simco-pretrain --config-name "digits/$method" "output_dir=$out/$method" "$@"
  runs+=("$out/$method")
done
echo
simco-report "${runs[@]}" --out "$out"
