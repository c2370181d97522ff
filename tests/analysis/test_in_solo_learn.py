"""The analyses of solo-learn's own methods, trained by its unmodified ``main_pretrain.py``."""

import csv

import numpy as np
import pytest
from PIL import Image

from tests.analysis.conftest import analyze
from tests.helpers import run_script
from tests.test_solo_scripts import QUICK, SCRIPTS, only
from tests.test_solo_scripts import pytestmark as needs_solo_learn

pytestmark = needs_solo_learn


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Class folders of 48 images."""
    path = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for number in range(48):
        target = path / "abcdef"[number % 6]
        target.mkdir(exist_ok=True)
        pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(target / f"{number}.png")
    return path


@pytest.mark.parametrize(
    "config, method",
    [
        ("cifar10/baselines/simclr", "simclr"),
        ("cifar10/baselines/mocov2plus", "mocov2plus"),
        ("cifar10/baselines/simsiam", "simsiam"),
        ("cifar10/decoupled_moco", "decoupled_moco"),
    ],
)
def test_while_it_trains_and_on_its_checkpoint(config, method, folder, tmp_path):
    done = run_script(
        *("-W", "ignore", SCRIPTS / "main_pretrain.py", "--config-name", config, *QUICK),
        *("data.dataset=custom", f"data.train_path={folder}", f"data.val_path={folder}"),
        *("backbone.name=micro_resnet", "max_epochs=2", "scheduler.warmup_epochs=1"),
        *("analysis.enabled=true", "analysis.every_n_steps=4", "analysis.keys=64"),
        *("analysis.sizes=[16,32]", "method_kwargs.proj_output_dim=16"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    checkpoint = only((tmp_path / "trained_models" / method).rglob("*.ckpt"))
    measured = checkpoint.parent / "analysis"
    assert "analyses during training: trained_models" in done.stdout
    assert (measured / "report.html").is_file()
    for name, steps in (("penalty", {"4", "8", "12"}), ("consistency", {"8", "12"})):
        with open(measured / f"{name}.csv", encoding="utf-8", newline="") as file:
            assert {row["step"] for row in csv.DictReader(file)} == steps
    # Its SimSiam's scheduler leaves a function in the checkpoint.
    trusted = ["trusted=true"] if method == "simsiam" else []
    if trusted:
        with pytest.raises(ValueError, match="more than plain values"):
            analyze(checkpoint, [])
    out = analyze(checkpoint, ["anchors=8", "batches=2", "num_workers=0", *trusted])
    assert (out / "penalty.png").is_file() and (out / "report.html").is_file()


def test_bad_settings_are_named(folder, tmp_path):
    done = run_script(
        *("-W", "ignore", SCRIPTS / "main_pretrain.py", "--config-name", "cifar10/simco", *QUICK),
        *("data.dataset=custom", f"data.train_path={folder}", f"data.val_path={folder}"),
        *("backbone.name=micro_resnet", "max_epochs=1", "analysis.every_n_steps=0"),
        "analysis.enabled=true",
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert "analysis.every_n_steps=0: must be a whole number of at least 1" in done.stderr
