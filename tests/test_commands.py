"""What all ten commands have in common: help, version and usage, said at once."""

import configparser
import os
import resource
import subprocess
import sys

import pytest

from simco_methods import __version__, options
from simco_methods.data.datasets import DATASETS
from simco_methods.encoder.formats import FORMATS
from simco_methods.looking.coordinates import METHODS
from tests.helpers import ROOT

_SETUP = configparser.ConfigParser()
_SETUP.read(ROOT / "setup.cfg")
_LINES = _SETUP["options.entry_points"]["console_scripts"].split("\n")
# simco-knn -> simco_methods.knn
COMMANDS = dict(line.removesuffix(":main").split(" = ") for line in _LINES if line)
OTHERS = ("simco-pretrain", "simco-report", "simco-table")
SETTINGS = [name for name in COMMANDS if name not in OTHERS]

# Runs a command, then says which of the modules that take seconds it has imported.
RUN = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=False)
finally:
    heavy = "torch", "torchvision", "timm", "lightning", "sklearn", "scipy", "matplotlib"
    print("imported:", *(name for name in heavy if name in sys.modules), file=sys.stderr)
"""


def run(program, *arguments):
    """Status, stdout, stderr, and the seconds of processor time it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", RUN, COMMANDS[program], *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "Traceback" not in done.stderr, done.stderr
    assert "imported:" in done.stderr.splitlines(), done.stderr
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.returncode, done.stdout, done.stderr, seconds


def test_there_are_ten():
    assert len(COMMANDS) == 10 and len(SETTINGS) == 7


@pytest.mark.parametrize("program", COMMANDS)
def test_help_and_version_are_said_at_once(program):
    status, said, _, seconds = run(program, "--help")
    assert status == 0 and said.startswith(f"usage: {program} ") and f"\n{program} " in said
    assert seconds < 1
    assert run(program, "x", "-h")[:2] == (0, said)
    status, version, _, seconds = run(program, "--version")
    assert (status, version) == (0, f"{program} {__version__}\n") and seconds < 1


@pytest.mark.parametrize("program", COMMANDS)
def test_without_arguments_the_usage_is_an_error(program):
    status, said, errors, seconds = run(program)
    assert status == 2 and not said and errors.startswith(f"usage: {program} ") and seconds < 1


@pytest.mark.parametrize("program", SETTINGS)
@pytest.mark.parametrize(
    "given, fault",
    [
        (["ouut=x"], "ouut is no setting of PROGRAM; did you mean out?"),
        (["trusted=x"], "trusted='x': must be true or false"),
        (["--out", "x"], "--out is no option of PROGRAM: write out=VALUE"),
    ],
)
def test_a_fault_of_the_settings_is_said_at_once(program, given, fault):
    things = ["RUN", "photos"][: 2 if program == "simco-embed" else 1]
    status, _, errors, seconds = run(program, *given, *things)
    assert status == 1 and fault.replace("PROGRAM", program) in errors and seconds < 1


def test_an_option_that_is_none():
    for program in ("simco-report", "simco-table"):
        status, _, errors, _ = run(program, "table5", "--ouut", "x")
        assert status == 2 and "--ouut" in errors
    given = "seed=1", "--config-name", "digits/simco", "--lr=1"
    status, _, errors, _ = run("simco-pretrain", *given)
    assert status == 1 and "--lr=1 is no option" in errors and "++" not in errors


def test_choices_are_those_that_there_are():
    assert tuple(DATASETS) == options.DATASETS
    assert tuple(FORMATS) == options.EXPORT_FORMATS
    assert tuple(METHODS) == options.MAPS
