#!/usr/bin/env bash
# Pretrains in a SLURM job, a task a GPU. To be submitted from this repository's folder:
#
#   sbatch --nodes=2 --gpus-per-node=4 --ntasks-per-node=4 bash/slurm.sh --config-name cifar100/simco
#
# optimizer.batch_size is that of one task. Two minutes before its time is over SLURM tells the tasks
# to end: the run's state is saved, and the job goes back to the queue and continues from there.
#SBATCH --job-name=simco
#SBATCH --nodes=1
#SBATCH --gpus-per-node=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=simco-%j.txt
set -euo pipefail
# SLURM runs a copy of this file, so its own place says nothing.
source "${SLURM_SUBMIT_DIR:?to be submitted by sbatch}/bash/setup.sh"

# What ends the script itself is scancel, or SLURM that requeues it of its own.
ended=
trap 'ended=1' TERM
code=0
# All tasks see all GPUs of their node, and take the one of their number there.
srun --kill-on-bad-exit=1 simco-pretrain "$@" "num_nodes=$SLURM_JOB_NUM_NODES" \
  "devices=$SLURM_NTASKS_PER_NODE" strategy=ddp || code=$?
if [ "$code" = 143 ] && [ -z "$ended" ]; then # ended by SIGTERM, and saved
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
