#!/usr/bin/env bash
# What the dictionary does for the two components of the gradient, on a fifth of CIFAR-10 with a small
# network: ten runs of decoupled_moco, their table and figure, and the analyses of two of them. About
# 8 minutes a run on 2 cores; RUNS="..." chooses some of them.
#
#   DATA=datasets OUT=runs/dictionary bash bash/dictionary_cifar10.sh [overrides]
#
# DATA holds torchvision's CIFAR-10 files, or class folders under train/ and test/. The first 1,000
# training and 200 test images of each class are used.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here/bash/setup.sh"
data=${DATA:-datasets}
out=${OUT:-runs/dictionary}

all="both_queue scalar_256 vector_256 both_256_recent both_256_random both_256_earliest
  both_256_tau0.05 both_256_tau1 both_batch both_batch_tau1"
both() { echo "method_kwargs.vector.$1 method_kwargs.scalar.$1"; }
settings() {
  case $1 in
    both_queue) ;;                                            # MoCo v2 with the whole queue
    scalar_256) echo method_kwargs.scalar.size=256 ;;         # Fig. 2
    vector_256) echo method_kwargs.vector.size=256 ;;
    both_256_recent) both size=256 ;;                         # Table 1; Table 2's last iteration
    both_256_random) both size=256; both order=random ;;
    both_256_earliest) both size=256; both order=earliest ;;
    both_256_tau*) both size=256; echo "method_kwargs.scalar.tau=${1##*tau}" ;;
    both_batch) both negatives=batch ;;                       # Table 2's current keys
    both_batch_tau*) both negatives=batch; echo "method_kwargs.scalar.tau=${1##*tau}" ;;
    *) echo "RUNS: $1 is none of $all" >&2; return 2 ;;
  esac
}

finished=()
for run in ${RUNS:-$all}; do
  chosen=$(settings "$run")
  # shellcheck disable=SC2086 # one word a setting
  simco-pretrain --config-name cifar10/decoupled_moco "output_dir=$out/$run" \
    "data.train_path=$data" "data.val_path=$data" \
    data.train_images_per_class=1000 data.val_images_per_class=200 data.num_workers=2 \
    backbone.name=micro_resnet max_epochs=20 scheduler.warmup_epochs=2 precision=32-true \
    method_kwargs.queue_size=16384 analysis.enabled=true $chosen "$@"
  finished+=("$out/$run")
done
simco-report "${finished[@]}" --out "$out"
for run in both_queue both_256_recent; do
  [ ! -d "$out/$run" ] || simco-analyze "$out/$run/checkpoints/last.ckpt" "out=$out/$run/analysis/at_the_end"
done
