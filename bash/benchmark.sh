#!/usr/bin/env bash
# Speed and memory: loss, augmentation, training step and epoch, each against another way in the same
# run. Prints ratios with their spread, writes JSON, Markdown and a plot to OUT (default
# runs/benchmark). With "gpu" also equality with the CPU, a profile and images/s, in under 8 minutes.
#
#   bash bash/benchmark.sh [cpu|gpu] [--only loss augmentation step epoch scaling compile] [--quick]
#
# DATA: class folders under train/ and test/ (a CIFAR-10 copy) instead of noise.
# SOLO_LEARN: a checkout of solo-learn, to be compared with; lightly is, where it is installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here/bash/setup.sh"
kind=cpu
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
  kind=$1
  shift
fi
exec python -m simco_methods.benchmark "$kind" --out "${OUT:-runs/benchmark}" \
  ${DATA:+--data "$DATA"} ${SOLO_LEARN:+--solo-learn "$SOLO_LEARN"} "$@"
