#!/usr/bin/env bash
# The pack's methods beside solo-learn's own: same data, backbone, optimiser, schedule, augmentation
# and evaluation, all in one runner, and one table at the end.
#
#   SOLO_LEARN=../solo-learn bash bash/compare_baselines.sh [overrides]
#   DATASET=cifar100 DATA=datasets SOLO_LEARN=../solo-learn bash bash/compare_baselines.sh
#
# DATASET: digits (the default, minutes on a laptop), cifar10 or cifar100 (the paper's settings).
# SOLO_LEARN: a checkout of solo-learn; not needed where it is installed. Without it the pack's own
# methods are compared. METHODS: some of them, e.g. "simco baselines/simclr". Runs that have finished
# are not repeated, interrupted ones continue; one that fails does not stop the others.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here/bash/setup.sh"
dataset=${DATASET:-digits}
out=${OUT:-runs/baselines/$dataset}
own="mocov2 mocov2plus simmoco simmoco_v2plus simco"
theirs="simclr mocov2plus byol simsiam nnclr barlow_twins vicreg"

missing=$(python -W ignore - <<'PYTHON' || echo "the host cannot be loaded (see above)"
import os
from simco_methods.choice import ABSENT, choose_host, solo_learn_problem
if choose_host() != "solo-learn":
    forced = "SIMCO_HOST=builtin is set" if os.environ.get("SIMCO_HOST") else ""
    print(forced or solo_learn_problem() or ABSENT)
PYTHON
)
methods=${METHODS:-$own}
if [ -n "$missing" ]; then
  echo "without solo-learn's methods ($theirs): $missing" >&2
  [ -n "${SOLO_LEARN:-}" ] || echo "set SOLO_LEARN to a checkout of it" >&2
elif [ -z "${METHODS:-}" ]; then
  for method in $theirs; do methods+=" baselines/$method"; done
fi

paths=()
[ -n "${DATA:-}" ] && paths=("data.train_path=$DATA" "data.val_path=$DATA")
finished=() failed=()
for method in $methods; do
  run=$out/$method
  if simco-pretrain --config-name "$dataset/$method" "output_dir=$run" \
    ${paths[@]+"${paths[@]}"} "$@"; then
    finished+=("$run")
  else
    [ $? -eq 130 ] && exit 130 # interrupted
    failed+=("$method")
  fi
done
echo
[ ${#finished[@]} -gt 0 ] && simco-report "${finished[@]}" --out "$out"
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
