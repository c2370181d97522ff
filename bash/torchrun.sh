#!/usr/bin/env bash
# Pretrains on the GPUs of one or several machines by torchrun: the same line on each machine, with
# its own NODE_RANK. Code, data and output_dir have to be where all of them see the same files.
#
#   NNODES=2 NODE_RANK=0 MASTER_ADDR=10.0.0.1 bash bash/torchrun.sh --config-name cifar100/simco
#   NNODES=2 NODE_RANK=1 MASTER_ADDR=10.0.0.1 bash bash/torchrun.sh --config-name cifar100/simco
#
#   NNODES       machines (default 1)
#   NODE_RANK    the number of this one, from 0 (default 0)
#   MASTER_ADDR  of machine 0 (default 127.0.0.1)
#   MASTER_PORT  a free one there (default 29500)
#   NPROC        processes on each machine (default: one a GPU, or one)
#
# optimizer.batch_size is that of one process. A process that fails ends all; the same lines then
# continue the run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here/bash/setup.sh"
nodes=${NNODES:-1}
processes=${NPROC:-$(python -c 'import torch; print(max(1, torch.cuda.device_count()))')}
exec python -m torch.distributed.run --nnodes "$nodes" --node_rank "${NODE_RANK:-0}" \
  --nproc_per_node "$processes" --master_addr "${MASTER_ADDR:-127.0.0.1}" \
  --master_port "${MASTER_PORT:-29500}" \
  -m simco_methods.pretrain "$@" "num_nodes=$nodes" "devices=$processes" strategy=ddp
