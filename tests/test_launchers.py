"""The scripts for several machines: what they start, and runs by them with two CPU processes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simco_methods.config.parse import complete
from simco_methods.overrides import hydra_override
from tests.helpers import ROOT, compose_config
from tests.test_distributed import free_port

ARGUMENTS = ["--config-name", "digits/simco"]
SHORT = [
    "accelerator=cpu",
    "limit_train_batches=2",
    "limit_val_batches=2",
    "num_sanity_val_steps=0",
    "knn_eval.offline=false",
    "optimizer.batch_size=16",
    "log_every_n_steps=1",
    "output_dir=run",
]
# Two tasks of SLURM's on this machine, which are told to end once there is the file STOP_AT.
SRUN = """
shift
export SLURM_NTASKS=2 SLURM_NNODES=1 SLURM_NODELIST=127.0.0.1 SLURM_JOB_NAME=simco SLURM_NODEID=0
tasks=()
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" &
  tasks+=($!)
done
if [ -n "${STOP_AT:-}" ]; then
  until [ -e "$STOP_AT" ]; do sleep 0.2; done
  kill -TERM "${tasks[@]}"
fi
code=0
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit "$code"
"""
RECORDED = """echo "$(basename "$0") $*" >>calls.txt; exit ${CODE:-0}"""


@pytest.fixture
def start(tmp_path):
    """Starts a copy of a script in an empty folder, with commands of this environment's."""
    (tmp_path / "bash").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bash" / "setup.sh").touch()  # nothing is to be installed

    def start(script, *arguments, commands=(), **env):
        shutil.copy(ROOT / "bash" / script, tmp_path / "bash")
        for name, content in dict(commands).items():
            command = tmp_path / "bin" / name
            command.write_text(f"#!/usr/bin/env bash\n{content}\n")
            command.chmod(0o755)
        path = [tmp_path / "bin", Path(sys.executable).parent, os.environ["PATH"]]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        packages = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            ["bash", f"bash/{script}", *map(str, arguments)],
            cwd=tmp_path,
            env={
                **kept,
                "PATH": os.pathsep.join(map(str, path)),
                "PYTHONPATH": packages,
                "SLURM_SUBMIT_DIR": str(tmp_path),
                "SLURM_JOB_ID": str(free_port()),  # Lightning makes a port of it
                "SLURM_JOB_NUM_NODES": "1",
                "SLURM_NTASKS_PER_NODE": "2",
                **{key: str(value) for key, value in env.items()},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def calls(folder):
    return (folder / "calls.txt").read_text().splitlines()


def composed(overrides):
    given = map(hydra_override, [*overrides.split(), "accelerator=cpu"])
    return complete(compose_config("digits/simco", *given))


def test_what_torchrun_starts(start, tmp_path):
    settings = {"NNODES": 2, "NODE_RANK": 1, "NPROC": 4, "MASTER_ADDR": "10.0.0.1"}
    process = start("torchrun.sh", *ARGUMENTS, commands={"python": RECORDED}, **settings)
    assert process.wait(60) == 0, process.stdout.read()
    (call,) = calls(tmp_path)
    launcher, overrides = call.split(" -m simco_methods.pretrain --config-name digits/simco ")
    assert launcher == (
        "python -m torch.distributed.run --nnodes 2 --node_rank 1 --nproc_per_node 4 "
        "--master_addr 10.0.0.1 --master_port 29500"
    )
    cfg = composed(overrides)
    assert (cfg.num_nodes, cfg.devices, cfg.strategy) == (2, 4, "ddp")


@pytest.mark.parametrize("code", [0, 1, 143])
def test_a_slurm_job_goes_back_to_the_queue_where_its_state_was_saved(code, start, tmp_path):
    commands = {"srun": RECORDED, "scontrol": 'echo "scontrol $*" >>calls.txt'}
    env = {"CODE": code, "SLURM_JOB_NUM_NODES": 3, "SLURM_NTASKS_PER_NODE": 4, "SLURM_JOB_ID": 71}
    process = start("slurm.sh", *ARGUMENTS, "seed=6", commands=commands, **env)
    assert process.wait(60) == code, process.stdout.read()
    first, *later = calls(tmp_path)
    options, overrides = first.split(" simco-pretrain --config-name digits/simco ")
    assert options == "srun --kill-on-bad-exit=1"
    assert later == (["scontrol requeue 71"] if code == 143 else [])
    cfg = composed(overrides)
    assert (cfg.num_nodes, cfg.devices, cfg.strategy, cfg.seed) == (3, 4, "ddp", 6)


def test_what_slurm_is_asked_for():
    lines = (ROOT / "bash" / "slurm.sh").read_text().splitlines()
    asked = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert {"--signal=TERM@120", "--requeue", "--open-mode=append"} <= set(asked)


@pytest.mark.slow
def test_torchrun_on_two_machines(start, tmp_path):
    """Both of them this one: each agent starts one process."""
    env = {"NNODES": 2, "NPROC": 1, "MASTER_PORT": free_port()}
    arguments = [*ARGUMENTS, *SHORT, "max_epochs=1"]
    machines = [start("torchrun.sh", *arguments, NODE_RANK=rank, **env) for rank in (0, 1)]
    said = [machine.communicate(timeout=300)[0] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], said
    assert "effective batch 32 (16 x 2 process(es)" in said[0] and "batch" not in said[1]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["processes"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"bash", "bin", "run"}


@pytest.mark.slow
def test_a_slurm_job_that_is_ended_in_time_continues(start, tmp_path):
    commands = {
        "srun": SRUN,
        "scontrol": 'echo "scontrol $*" >>calls.txt',
        "simco-pretrain": f'exec {sys.executable} -m simco_methods.pretrain "$@"',
    }
    arguments = [*ARGUMENTS, *SHORT, "max_epochs=40"]
    job = start("slurm.sh", *arguments, commands=commands, STOP_AT="run/metrics.csv")
    said = job.communicate(timeout=300)[0]
    assert job.returncode == 143, said
    (call,) = calls(tmp_path)
    assert (
        call.startswith("scontrol requeue ") and (tmp_path / "run/checkpoints/last.ckpt").exists()
    )
    job = start("slurm.sh", *arguments)
    said = job.communicate(timeout=300)[0]
    assert job.returncode == 0 and "continues from" in said, said
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["epochs"] == 40 and summary["processes"] == 2
    assert len(calls(tmp_path)) == 1
