"""Which process this is, before there is a process group."""

import pytest

from simco_methods.runner.rank import process_rank

SRUN = {"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "1"}


@pytest.mark.parametrize(
    "environment, rank",
    [
        ({}, 0),
        ({"LOCAL_RANK": "1"}, 1),
        ({"RANK": "5", "LOCAL_RANK": "1"}, 5),
        ({**SRUN, "LOCAL_RANK": "0"}, 1),
        # In a shell that SLURM gave, a process that Lightning started.
        ({**SRUN, "SLURM_JOB_NAME": "bash", "SLURM_PROCID": "0", "LOCAL_RANK": "1"}, 1),
    ],
)
def test_the_rank_is_the_launcher_s(environment, rank, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", *SRUN):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert process_rank() == rank
