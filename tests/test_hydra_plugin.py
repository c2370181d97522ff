"""The Hydra plugin: in solo-learn's own scripts, and in apps that have nothing to do with us."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simco_methods.methods import METHODS
from tests.helpers import CONFIGS, compose_config

ROOT = Path(__file__).parents[1]
SOLO = importlib.util.find_spec("solo")
needs_solo = [
    pytest.mark.solo_learn,
    pytest.mark.skipif(SOLO is None, reason="needs solo-learn on the path"),
]
QUICK = [
    "max_epochs=1",
    "accelerator=cpu",
    "precision=32-true",
    "optimizer.batch_size=8",
    "data.num_workers=0",
    "+limit_train_batches=2",
    "+num_sanity_val_steps=0",
    "backbone.name=micro_resnet",
]

APP = """
import sys, time
start = time.perf_counter()
import hydra
@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    heavy = [m for m in ("torch", "lightning", "timm", "simco_methods") if m in sys.modules]
    print("value", cfg.get("value"), heavy)
main()
"""


def run(script, *arguments, cwd, path=()):
    parts = [*map(str, path), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(parts)},
        capture_output=True,
        text=True,
    )


def test_silent_and_light_in_any_other_app(tmp_path):
    app = tmp_path / "app.py"
    app.write_text(APP)
    done = run(app, "+value=3", "hydra.run.dir=.", "hydra.output_subdir=null", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "value 3 []\n" and done.stderr == ""


def test_configs_are_found_from_any_app():
    assert compose_config("cifar10/simco").method == "simco"


@pytest.fixture
def images(tmp_path):
    generator = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            for i in range(10):
                file = tmp_path / split / name / f"{i}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(file)
    return tmp_path


# solo-learn reads CIFAR-10 only from torchvision's files, whose checksums made-up ones cannot have.
NO_CHECKSUM = """
import importlib.abc, importlib.util, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torchvision.datasets.cifar":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            module.check_integrity = lambda *_: True
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def cifar(tmp_path):
    import pickle

    folder = tmp_path / "cifar" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        pixels = generator.integers(0, 255, (8, 3072), dtype=np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "labels": list(range(8))}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(NO_CHECKSUM)
    return folder.parent, site


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("by_path", [False, True], ids=["--config-name", "--config-path"])
class TestSoloLearn:
    pytestmark = needs_solo

    @staticmethod
    def config(dataset, method, by_path):
        if by_path:
            return ["--config-path", str(CONFIGS / dataset), "--config-name", f"{method}.yaml"]
        return ["--config-name", f"{dataset}/{method}"]

    @staticmethod
    def pretrain(cwd, *arguments, path=()):
        script = Path(SOLO.submodule_search_locations[0]).parent / "main_pretrain.py"
        done = run(script, *arguments, *QUICK, cwd=cwd, path=path)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        assert list((cwd / "trained_models").rglob("*.ckpt"))
        assert list((cwd / "trained_models").rglob("args.json"))

    def test_trains_on_cifar10(self, method, by_path, cifar, tmp_path):
        folder, site = cifar
        self.pretrain(
            tmp_path,
            *self.config("cifar10", method, by_path),
            f"data.train_path={folder}",
            f"data.val_path={folder}",
            path=[site],
        )

    def test_trains_on_a_custom_folder(self, method, by_path, images):
        self.pretrain(
            images,
            *self.config("custom", method, by_path),
            f"data.train_path={images / 'train'}",
            f"data.val_path={images / 'val'}",
            "augmentations.0.crop_size=32",
        )


@pytest.mark.solo_learn
@pytest.mark.skipif(SOLO is None, reason="needs solo-learn on the path")
def test_the_table_of_solo_learn_is_completed_not_changed():
    from solo.methods import METHODS as SOLO_METHODS

    from simco_methods.methods import register

    before = dict(SOLO_METHODS)
    register()
    assert all(SOLO_METHODS[name] is METHODS[name] for name in METHODS)
    assert all(SOLO_METHODS[name] is kind for name, kind in before.items())


@pytest.mark.solo_learn
@pytest.mark.skipif(SOLO is None, reason="needs solo-learn on the path")
def test_argparse_scripts_see_the_methods(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from solo.methods import METHODS\n"
        "print(__name__, sys.argv[1:], [m for m in ('simco', 'simmoco', 'mocov2') if m in METHODS])"
    )
    done = run("-m", "simco_methods.solo_learn", str(script), "--k", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "__main__ ['--k', '5'] ['simco', 'simmoco', 'mocov2']" in done.stdout


def test_a_missing_script_is_named(tmp_path):
    done = run("-m", "simco_methods.solo_learn", "main_nnk.py", cwd=tmp_path)
    assert done.returncode != 0 and "main_nnk.py is no file" in done.stderr
