"""Two processes of ``simco-pretrain`` against one, and what becomes of them when one dies."""

import csv
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image

from simco_methods.config.parse import complete
from simco_methods.runner import trainer
from simco_methods.runner.folder import RunFolder
from simco_methods.runner.recorder import Recorder
from simco_methods.runner.saver import Saver
from tests.helpers import compose_config, start_pretraining

# Without batch norm, so that a process's own batch statistics do not matter.
VIT = "backbone={name:vit_tiny,kwargs:{img_size:16,patch_size:8}}"
SMALL = [
    VIT,
    "accelerator=cpu",
    "precision=32-true",
    "augmentations.0.crop_size=16",
    "data.num_workers=0",
    "num_sanity_val_steps=0",
    "log_every_n_steps=1",
    "scheduler.warmup_epochs=0",
]


def pretrained(folder, *arguments, code=0):
    process = start_pretraining(folder, *arguments)
    said, errors = process.communicate(timeout=400)
    assert (process.returncode == 0) == (code == 0), said + errors
    return said, errors


def pictures(folder, count):
    """``count`` pictures in three classes of different colours."""
    random = np.random.default_rng(count)
    for number in range(count):
        pixels = random.integers(0, 120, (20, 20, 3), dtype=np.uint8)
        pixels[..., number % 3] += 100
        path = folder / "abc"[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def rows(run):
    with open(run / "metrics.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["simco", "mocov2plus"])
def test_two_processes_measure_as_one(method, tmp_path):
    """33 images to train on and 9 to validate on: neither is a multiple of the processes."""
    data = pictures(tmp_path / "train", 33), pictures(tmp_path / "val", 9)
    arguments = [
        f"--config-name=custom/{method}",
        f"data.train_path={data[0]}",
        f"data.val_path={data[1]}",
        *SMALL,
        "max_epochs=2",
        "knn_eval.k=3",
        *(["method_kwargs.queue_size=48"] if method == "mocov2plus" else []),
    ]
    two = [*arguments, "optimizer.batch_size=8", "devices=2", "strategy=ddp", "output_dir=two"]
    said, _ = pretrained(tmp_path, *two)
    assert "effective batch 16 (8 x 2 process(es)" in said
    pretrained(tmp_path, *arguments, "optimizer.batch_size=16", "output_dir=one")
    table = list(zip(rows(tmp_path / "two"), rows(tmp_path / "one"), strict=True))
    assert len(table) == 2
    for two, one in table:
        assert two.keys() == one.keys() and two["step"] == one["step"]
        for key in ("train_nce_loss", "train_class_loss", "train_acc1", "lr", "val_loss"):
            assert float(two[key]) == pytest.approx(float(one[key]), rel=1e-5), key
        for key in ("val_acc1", "val_knn_acc1"):
            assert two[key] == one[key], key
    two, one = (json.loads((tmp_path / run / "summary.json").read_text()) for run in ("two", "one"))
    for key in ("knn_acc1", "untrained_knn_acc1"):
        assert two[key] == one[key], key
    assert two["processes"] == 2 and one["processes"] == 1


@pytest.mark.slow
def test_too_few_images_end_both_processes(tmp_path):
    data = pictures(tmp_path / "train", 10)
    start = time.monotonic()
    arguments = ["--config-name=custom/simco", f"data.train_path={data}", *SMALL]
    two = ["optimizer.batch_size=8", "devices=2", "strategy=ddp", "output_dir=run"]
    _, errors = pretrained(tmp_path, *arguments, *two, code=1)
    assert "one batch needs 16 images" in errors and "the data has 10" in errors
    assert time.monotonic() - start < 120  # nearly all of it for loading
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_rank_0_alone_writes(tmp_path):
    """A sweep of two jobs of two processes, analysed, with W&B offline."""
    pytest.importorskip("wandb")
    arguments = [
        "--config-name=digits/mocov2",
        *SMALL,
        "backbone={name:micro_resnet,kwargs:{channels:[8,8,16,16]}}",
        "max_epochs=1",
        "limit_train_batches=2",
        "limit_val_batches=2",
        "optimizer.batch_size=16",
        "knn_eval.offline=false",
        "analysis.enabled=true",
        "analysis.every_n_steps=1",
        "analysis.keys=64",
        "wandb.enabled=true",
        "wandb.offline=true",
        "devices=2",
        "strategy=ddp",
    ]
    said, _ = pretrained(tmp_path, "-m", *arguments, "method_kwargs.tau=0.1,0.2")
    assert said.count("epoch 1/1") == said.count("finished ") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}
    folders = [path for path in (tmp_path / "runs" / "mocov2-digits").iterdir()]
    assert len(folders) == 2
    for folder in folders:
        assert json.loads((folder / "summary.json").read_text())["processes"] == 2
        assert len(list((folder / "tensorboard").glob("events*"))) == 1
        assert len(list((folder / "wandb").glob("offline-run-*"))) == 1
        assert list((folder / "analysis").iterdir())


TWO = [
    "--config-name=digits/simco",
    *SMALL,
    "max_epochs=12",
    "limit_train_batches=4",
    "limit_val_batches=1",
    "knn_eval.offline=false",
    "optimizer.batch_size=16",
    "devices=2",
    "strategy=ddp",
    "output_dir=run",
]


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    found = [int(child) for child in found.stdout.split()]
    return [child for child in found if b"pretrain" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_ends_the_other(rank, tmp_path):
    process = start_pretraining(tmp_path, *TWO)
    for line in process.stdout:
        if line.startswith("epoch 2/"):
            break
    (other,) = children(process.pid)
    start = time.monotonic()
    os.kill((process.pid, other)[rank], signal.SIGKILL)
    process.communicate(timeout=60)  # until both have closed their output
    assert process.returncode != 0 and time.monotonic() - start < 60
    assert not (tmp_path / "run" / "summary.json").exists()
    said, _ = pretrained(tmp_path, *TWO)
    assert "continues from" in said and len(rows(tmp_path / "run")) == 12


FAILS = """
import os
from simco_methods.methods.simco import SimCo
from simco_methods.pretrain import main

step = SimCo.training_step

def training_step(self, batch, batch_idx):
    if self.current_epoch == 1 and os.environ.get("LOCAL_RANK", "0") == "{rank}":
        raise RuntimeError("only here")
    return step(self, batch, batch_idx)

SimCo.training_step = training_step
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_in_one_process_ends_the_other(rank, tmp_path):
    (tmp_path / "fails.py").write_text(FAILS.format(rank=rank))
    process = start_pretraining(tmp_path, *TWO, program=["fails.py"])
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0 and "only here" in errors
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("on_cpu", [True, False])
def test_sync_batch_norm_is_for_gpus(on_cpu, tmp_path, monkeypatch, capsys):
    given = {}
    monkeypatch.setattr(trainer, "Trainer", lambda **settings: given.update(settings))
    monkeypatch.setattr(trainer, "runs_on_cpu", lambda cfg: on_cpu)
    cfg = compose_config("cifar10/simco", "accelerator=cpu", "++devices=2", "strategy=ddp")
    cfg = complete(OmegaConf.merge(cfg, {"sync_batchnorm": True, "output_dir": str(tmp_path)}))
    folder = RunFolder(cfg)
    trainer.build_trainer(cfg, folder, Recorder(folder), Saver(folder), 0)
    assert given["sync_batchnorm"] is not on_cpu
    said = capsys.readouterr().out
    assert said.count("sync_batchnorm needs GPUs") == on_cpu
