#!/usr/bin/env bash
# Table 7: ResNet-18, ResNet-50, ViT-tiny and Swin-tiny.
# Settings by variables, see table.sh: SCALE=mini SEEDS="5 6 7" DATA=DIR OUT=DIR DRY=1 LAUNCHER=...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/table.sh"
table table7_architectures "$@"
