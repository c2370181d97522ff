#!/usr/bin/env bash
# MoCo v2, SimMoCo and SimCo on a fifth of CIFAR-10 with a small network: under an hour on 2 cores.
#
#   DATA=datasets OUT=runs/mini bash bash/mini_cifar10.sh [overrides]
#
# DATA holds torchvision's CIFAR-10 files, or class folders under train/ and test/. The first 1,000
# training and 200 test images of each class are used.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here/bash/setup.sh"
data=${DATA:-datasets}
out=${OUT:-runs/mini_cifar10}

for method in mocov2 simmoco simco; do
  queue=()
  # One temperature, and a queue as small as the batch: what SimMoCo and SimCo do without.
  [ "$method" = mocov2 ] && queue=(method_kwargs.queue_size=256)
  simco-pretrain --config-name "cifar10/$method" "output_dir=$out/$method" \
    "data.train_path=$data" "data.val_path=$data" \
    data.train_images_per_class=1000 data.val_images_per_class=200 data.num_workers=2 \
    backbone.name=micro_resnet max_epochs=20 scheduler.warmup_epochs=2 precision=32-true \
    ${queue[@]+"${queue[@]}"} "$@"
done
simco-report "$out/mocov2" "$out/simmoco" "$out/simco" --out "$out"
