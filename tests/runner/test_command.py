"""``simco-pretrain`` as a command: sweeps, two processes, bad input."""

import json
import signal
import subprocess

import pytest

from tests.helpers import start_pretraining

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
    process = start_pretraining(folder, *arguments, *(QUICK if quick else []))
    try:
        said, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)


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


def test_bad_arguments_are_all_named(tmp_path):
    wrong = "optimizer.lerning_rate=1", "optimzer.lr=1", "precision=8", "method_kwargs.tau_beta=-1"
    done = command(tmp_path, "--config-name", "digits/simco", *wrong)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    for message in (
        "optimizer.lerning_rate is no key of the runner",
        "did you mean optimizer",
        "precision=8: must be one of",
        "method_kwargs.tau_beta must be a finite number above 0, got -1",
    ):
        assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_no_config_name_shows_the_usage(tmp_path):
    done = command(tmp_path, "seed=3", quick=False)
    assert done.returncode != 0 and "simco-pretrain --config-name digits/simco" in done.stderr
    assert "digits" in done.stderr and "simmoco_v2plus" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_failing_job_does_not_stop_a_sweep(tmp_path):
    done = command(tmp_path, "-m", "--config-name", "digits/simco", "optimizer.lr=-1,0.1")
    assert done.returncode != 0 and "optimizer.lr=-1: must be a finite number" in done.stderr
    assert "1 job(s) failed" in done.stderr
    assert len(list((tmp_path / "runs").rglob("summary.json"))) == 1


@pytest.mark.parametrize(
    "kind", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_an_interrupted_command_says_so_and_can_be_continued(kind, tmp_path):
    arguments = ["--config-name", "digits/simco", *QUICK, "max_epochs=500", "output_dir=run"]
    process = start_pretraining(tmp_path, *arguments)
    for line in process.stdout:
        if line.startswith("epoch 2/"):
            process.send_signal(kind)
            break
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + kind
    assert "interrupted; the same command continues run" in errors
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()
    assert not (tmp_path / "run" / "summary.json").exists()


def test_missing_data_are_named(tmp_path):
    done = command(tmp_path, "--config-name", "cifar10/simco", "backbone.name=micro_resnet")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert f"cifar10 was not found in {tmp_path / 'datasets'}" in done.stderr
    assert "data.download=true" in done.stderr
