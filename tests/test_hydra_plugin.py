"""The Hydra plugin, in apps that have nothing to do with us too, and the launcher."""

import pytest

from simco_methods.host import HOST
from simco_methods.methods import METHODS
from tests.helpers import compose_config, run_script

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


def test_silent_and_light_in_any_other_app(tmp_path):
    app = tmp_path / "app.py"
    app.write_text(APP)
    done = run_script(app, "+value=3", "hydra.run.dir=.", "hydra.output_subdir=null", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "value 3 []\n" and done.stderr == ""


def test_configs_are_found_from_any_app():
    assert compose_config("cifar10/simco").method == "simco"


@pytest.mark.solo_learn
@pytest.mark.skipif(HOST != "solo-learn", reason="of the solo-learn host")
def test_the_table_of_solo_learn_is_completed_not_changed():
    from solo.methods import METHODS as SOLO_METHODS

    from simco_methods.methods import register

    before = dict(SOLO_METHODS)
    register()
    assert all(SOLO_METHODS[name] is METHODS[name] for name in METHODS)
    assert all(SOLO_METHODS[name] is kind for name, kind in before.items())


@pytest.mark.solo_learn
def test_argparse_scripts_see_the_methods(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from solo.methods import METHODS\n"
        "print(__name__, sys.argv[1:], [m for m in ('simco', 'simmoco', 'mocov2') if m in METHODS])"
    )
    done = run_script("-m", "simco_methods.solo_learn", str(script), "--k", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "__main__ ['--k', '5'] ['simco', 'simmoco', 'mocov2']" in done.stdout


def test_a_missing_script_is_named(tmp_path):
    done = run_script("-m", "simco_methods.solo_learn", "main_nnk.py", cwd=tmp_path)
    assert done.returncode != 0 and "main_nnk.py is no file" in done.stderr
