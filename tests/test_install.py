"""A wheel and an editable install, each in an environment of its own and from another folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECK = """
import importlib.resources
from hydra import compose, initialize
import simco_methods, solo_configs, hydra_plugins.simco_methods
with initialize(version_base="1.3", config_path=None):
    cfg = compose("cifar100/simmoco_v2plus")  # through the plugin's search path
assert cfg.method == "simmoco" and cfg.augmentations[0].crop_size == 32
from simco_methods.tables.definition import scale_names, table_names
assert len(table_names()) == 12 and scale_names() == ["mini", "paper", "smoke"]
assert (importlib.resources.files("solo_configs") / "hydra/launcher/simco_slurm.yaml").is_file()
for module in (simco_methods, solo_configs, hydra_plugins.simco_methods):
    print(module.__file__)
"""


def run(*command, cwd):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SIMCO_HOST")}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("editable", [False, True], ids=["wheel", "editable"])
def test_install(editable, tmp_path):
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns(".*", "runs", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignore)
    environment, elsewhere = tmp_path / "env", tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    paths = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
    )
    # The dependencies of this environment, but not what its own .pth files add.
    Path(paths.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed", "--quiet"]
    if editable:
        run(*pip, "install", *options, "--editable", source, cwd=elsewhere)
    else:
        run(*pip, "wheel", *options[:3], "--wheel-dir", tmp_path, source, cwd=elsewhere)
        shutil.rmtree(source)
        (wheel,) = tmp_path.glob("simco_methods-*.whl")
        run(*pip, "install", *options, wheel, cwd=elsewhere)
    home = source if editable else environment
    files = run(python, "-c", CHECK, cwd=elsewhere).splitlines()
    assert len(files) == 3 and all(Path(file).is_relative_to(home) for file in files), files
    shown = run(
        environment / "bin" / "simco-pretrain", "--config-name", "digits/simco", "--cfg", "job",
        cwd=elsewhere,
    )  # fmt: skip
    assert "method: simco" in shown and not list(elsewhere.iterdir())
    for command in ("simco-report", "simco-table"):
        assert "usage" in run(environment / "bin" / command, "--help", cwd=elsewhere)
