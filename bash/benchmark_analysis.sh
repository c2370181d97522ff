#!/usr/bin/env bash
# What the analyses cost: the sweep over dictionary sizes and temperatures against the plain way, and
# a training step with and without the measurements. Minutes on a CPU; on a GPU it takes that.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here/bash/setup.sh"
python -m simco_methods.benchmark.analyses sweep
python -m simco_methods.benchmark.analyses callback "$@"
