"""Which host is taken, and what is said when it cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINT_HOST = "from simco_methods.choice import choose_host; print('HOST', choose_host())"


def host_of(tmp_path, choice=None, solo=None, command=("-c", PRINT_HOST)):
    """(exit code, output) of a command with a made-up solo-learn on the path."""
    for name, content in (solo or {}).items():
        file = tmp_path / "solo" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    keep = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and "solo" not in p]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *keep])}
    env.pop("SIMCO_HOST", None)
    if choice is not None:
        env["SIMCO_HOST"] = choice
    done = subprocess.run(
        [sys.executable, "-W", "ignore:pkg_resources", *map(str, command)],
        env=env,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    return done.returncode, done.stdout + done.stderr


OLD = {
    "__init__.py": "",
    "methods/__init__.py": "",
    "methods/base.py": "class BaseMethod:\n    add_model_specific_args = None\n",
}
BROKEN = {"__init__.py": "", "methods/__init__.py": "import no_such_module\n"}
# As the real one: the package itself imports everything.
BROKEN_AT_ONCE = {**BROKEN, "__init__.py": "from solo import methods\n"}


def test_misspelt_choice_is_refused(tmp_path):
    code, output = host_of(tmp_path, "sololearn")
    assert code and "SIMCO_HOST='sololearn' is none of solo-learn, builtin" in output


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "simco_methods.pretrain", "--config-name", "digits/simco"),
        ("-m", "simco_methods.solo_learn", __file__),
    ],
    ids=lambda command: command[1],
)
def test_commands_say_so_in_one_line(command, tmp_path):
    code, output = host_of(tmp_path, "sololearn", command=command)
    assert code and "SIMCO_HOST='sololearn' is none of" in output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    "choice, solo, complaint",
    [
        (None, None, "no solo-learn is on the path"),
        (None, "OLD", "has the old argparse API"),
        (None, "BROKEN_AT_ONCE", "No module named 'no_such_module'"),
        ("builtin", "OLD", "SIMCO_HOST=builtin is set; unset it"),
    ],
)
def test_the_launcher_needs_solo_learn(choice, solo, complaint, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    command = ("-m", "simco_methods.solo_learn", script)
    code, output = host_of(tmp_path, choice, solo and globals()[solo], command)
    assert code and complaint in output and "ran" not in output
    assert choice or "SIMCO_HOST" not in output  # which would be no way out
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize("solo", [None, {"__init__.py": ""}], ids=["absent", "another package"])
def test_builtin_without_solo_learn(tmp_path, solo):
    code, output = host_of(tmp_path, solo=solo)
    assert code == 0 and output.strip() == "HOST builtin"
    code, output = host_of(tmp_path, "solo-learn", solo)
    assert code and "no solo-learn is on the path" in output and "1.0.6" in output


@pytest.mark.parametrize(
    "solo, complaint",
    [
        (OLD, "has the old argparse API"),
        (BROKEN, "no_such_module"),
        (BROKEN_AT_ONCE, "no_such_module"),
    ],
)
def test_unusable_solo_learn(tmp_path, solo, complaint):
    code, output = host_of(tmp_path, solo=solo)
    assert code == 0 and "HOST builtin" in output
    assert output.count(complaint) == 1 and "SIMCO_HOST=builtin" in output
    code, output = host_of(tmp_path, "builtin", solo)
    assert output.strip() == "HOST builtin"
    code, output = host_of(tmp_path, "solo-learn", solo)
    assert code and complaint in output


def test_real_host_is_the_one_on_the_path():
    from simco_methods import host
    from simco_methods.choice import choose_host

    assert choose_host() == host.HOST
    if host.HOST == "solo-learn":
        from solo.methods import base
    else:
        from simco_methods.host.builtin import base
    assert host.BaseMethod is base.BaseMethod
    assert host.BaseMomentumMethod is base.BaseMomentumMethod
