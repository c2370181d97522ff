"""``simco-pretrain`` as a command: sweeps, two processes, bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK = [
    "max_epochs=1",
    "accelerator=cpu",
    "limit_train_batches=2",
    "limit_val_batches=2",
    "num_sanity_val_steps=0",
    "data.num_workers=0",
    "optimizer.batch_size=16",
    "knn_eval.offline=false",
    "log_every_n_steps=1",
]


def command(folder, *arguments, quick=True, timeout=300):
    env = {**os.environ}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "simco_methods.pretrain", *arguments, *(QUICK if quick else [])],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_a_sweep_makes_a_folder_a_job(tmp_path):
    done = command(
        tmp_path, "-m", "--config-name", "digits/simco", "method_kwargs.tau_beta=0.5,1.0"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summaries = list((tmp_path / "runs" / "simco-digits").glob("*/summary.json"))
    assert len(summaries) == 2
    # Hydra leaves its multirun.yaml, and nothing else but the runs is there.
    assert {p.name for p in tmp_path.iterdir()} <= {"runs", "multirun.yaml"}


def test_two_processes_write_one_folder(tmp_path):
    done = command(
        tmp_path, "--config-name", "digits/mocov2", "devices=2", "strategy=ddp", "output_dir=run"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "effective batch 32 (16 x 2 process(es)" in done.stdout
    assert done.stdout.count("sync_batchnorm needs GPUs") == 1
    assert done.stdout.count("epoch 1/1") == 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["processes"] == 2
    assert {p.name for p in tmp_path.iterdir()} == {"run"}


def test_too_few_images_for_two_processes_end_in_an_error(tmp_path):
    done = command(
        tmp_path,
        "--config-name",
        "digits/simco",
        "devices=2",
        "strategy=ddp",
        "data.train_images_per_class=3",
        timeout=120,
    )
    assert done.returncode != 0
    assert "one batch needs 32 images" in done.stderr and "the data has 30" in done.stderr


@pytest.mark.parametrize(
    "argument, message",
    [
        ("optimizer.lerning_rate=1", "optimizer.lerning_rate is no key of the runner"),
        ("optimzer.lr=1", "did you mean optimizer"),
        ("precision=8", "precision=8: must be one of"),
    ],
)
def test_bad_arguments_are_named(tmp_path, argument, message):
    done = command(tmp_path, "--config-name", "digits/simco", argument)
    assert done.returncode != 0 and message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_missing_data_are_named(tmp_path):
    done = command(tmp_path, "--config-name", "cifar10/simco", "backbone.name=micro_resnet")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert f"cifar10 was not found in {tmp_path / 'datasets'}" in done.stderr
    assert "data.download=true" in done.stderr
