#!/usr/bin/env bash
# Table 8: five methods on CIFAR-10, CIFAR-100, SVHN, STL-10 and ImageNet-100.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table table8_datasets "$@"
