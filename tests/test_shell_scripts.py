"""The shell scripts: their syntax, and what they refuse before anything is installed."""

import os
import subprocess

import pytest

from tests.helpers import ROOT

SCRIPTS = sorted((ROOT / "bash").glob("*.sh"))


def bash(*arguments, **env):
    done = subprocess.run(
        ["bash", *map(str, arguments)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_syntax(script):
    assert bash("-n", script) == (0, "")


@pytest.mark.parametrize("script", ["test", "compare_baselines", "quickstart"])
def test_a_folder_that_is_no_checkout(script):
    code, output = bash(ROOT / "bash" / f"{script}.sh", SOLO_LEARN="/nowhere")
    assert code == 2
    assert output == "simco-methods: SOLO_LEARN=/nowhere is no checkout of solo-learn\n"


@pytest.mark.parametrize("given", [["--stack", "yesterday"], ["--stack"]])
def test_unknown_stack(given):
    code, output = bash(ROOT / "bash" / "test.sh", *given)
    assert code == 2 and "must be today, solo-learn-pins or both" in output


def test_every_script_is_in_the_readme():
    readme = (ROOT / "bash" / "README.md").read_text()
    for script in SCRIPTS:
        sourced = script.name in ("setup.sh", "table.sh")
        assert sourced or f"| `{script.name}` |" in readme
