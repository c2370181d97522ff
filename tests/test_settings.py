"""Tests of the ``key=value`` settings of commands, and of what commands have in common."""

import os
import re
import sys
from dataclasses import dataclass, field

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from simco_methods.command import memory_fault, run_command
from simco_methods.config.checks import each, number, optional, text
from simco_methods.files import user_path
from simco_methods.settings import parse_settings, setting, split_arguments
from tests.helpers import NAMES


@dataclass
class Settings:
    CONFIG = ("data",)

    out: str | None = setting(None, optional(text))
    query: list[str] | None = setting(None, optional(each(text)), listed=True)
    k: list[float] = setting([1], each(number(0)), listed=True, commas=True)
    config: DictConfig = field(default_factory=lambda: OmegaConf.create({}))


@pytest.fixture
def command(monkeypatch):
    """Calls ``simco-x THING``, whose settings and function are given."""

    def call(thing, kind, run):
        monkeypatch.setattr(sys, "argv", ["simco-x", thing])
        named = {"settings": kind, "run": run}
        monkeypatch.setattr("simco_methods.command.resolve_name", named.get)
        run_command("simco-x", "", "settings", "run")

    return call


@pytest.mark.parametrize("value", ["*1", "[1", "@x", "???", "${none}", "\udcff"])
def test_what_yaml_cannot_read_is_one_message(value):
    with pytest.raises(ValueError, match="cannot be read as YAML") as raised:
        parse_settings("simco-x", Settings, ["k=1", f"k={value}"])
    assert str(raised.value).startswith(f"k={value} ")


@pytest.mark.parametrize("name", NAMES)
def test_text_is_taken_as_it_was_typed(name):
    read = parse_settings("simco-x", Settings, [f"out={name}", f"data.train_path={name}"])
    assert read.out == read.config.data.train_path == name


def test_text_in_quotes_and_null():
    for spelt in ("'a,b'", '"a,b"'):
        read = parse_settings("simco-x", Settings, [f"out={spelt}", f"query={spelt}"])
        assert read.out == "a,b" and read.query == ["a,b"]
    read = parse_settings("simco-x", Settings, ["out=null", "query=null", "data.val_path=null"])
    assert read.out is read.query is read.config.data.val_path is None


@pytest.mark.parametrize(
    "value, entries",
    [
        ("a,b", ["a", "b"]),
        ("[a, b]", ["a", "b"]),
        ("[größe,#1,it's]", ["größe", "#1", "it's"]),
        ("'a,b',c", ["a,b", "c"]),
        ("[x]", ["x"]),
        ("1,null", ["1", "null"]),
        ("a,a", ["a"]),
    ],
)
def test_texts_between_commas(value, entries):
    assert parse_settings("simco-x", Settings, [f"query={value}"]).query == entries


@pytest.mark.parametrize("name", [*NAMES, '"q"', "'a,b'", "[a,b]", "${x}", "~root", "NULL"])
def test_a_path_that_is_there_is_taken_as_it_was_typed(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    given = [f"{key}={name}" for key in ("out", "query", "data.train_path")]
    read = parse_settings("simco-x", Settings, given)
    if name == "NULL":  # means none all the same
        assert read.out is read.query is read.config.data.train_path is None
        return
    assert [read.out] == read.query == [read.config.data.train_path] == [name]
    assert user_path(name).resolve() == tmp_path / name


def test_settings_and_what_is_named_in_any_order(tmp_path, monkeypatch):
    def split(*arguments):
        return split_arguments("simco-x", Settings, ("ENCODER", "FOLDER"), arguments)

    monkeypatch.chdir(tmp_path)
    assert split("k=5", "RUN", "out=a b", "photos") == (["RUN", "photos"], ["k=5", "out=a b"])
    assert split("runs/a=b", "data.train_path=x", "./k=5") == (
        ["runs/a=b", "./k=5"], ["data.train_path=x"],
    )  # fmt: skip
    (tmp_path / "a=b").touch()
    (tmp_path / "-x").touch()
    assert split("a=b", "-x") == (["a=b", "-x"], [])
    for arguments, line in [
        (("RUN", "k=5"), "FOLDER is missing\nusage: simco-x ENCODER FOLDER"),
        (("RUN", ""), "FOLDER is empty"),
        (("RUN", "photos", "more"), "more is not of the form key=value"),
        (("RUN", "photos", "--kk", "5"), "--kk is no option of simco-x"),
        (("RUN", "--query=x.jpg"), "--query=x.jpg is no option of simco-x: write query=VALUE"),
    ]:
        with pytest.raises(ValueError, match=re.escape(line)):
            split(*arguments)


def test_an_interruption_while_modules_are_loaded_has_its_status(command, monkeypatch):
    def interrupted(program):
        raise KeyboardInterrupt

    monkeypatch.setattr("simco_methods.command.check_host", interrupted)
    with pytest.raises(SystemExit) as ended:
        command("photos", Settings, lambda thing, settings: None)
    assert ended.value.code == 130


def test_a_name_that_is_no_unicode_is_printed(command, monkeypatch, capfdbinary):
    stdout = open(os.dup(1), "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    with stdout:
        command("photos\udcff", Settings, lambda thing, settings: print(thing))
    assert capfdbinary.readouterr().out == rb"photos\udcff" + b"\n"


@pytest.mark.parametrize("value", ["1,20,0.5", "[1,20,5e-1]", "1, 20, .5"])
def test_numbers_between_commas_are_numbers(value):
    assert parse_settings("simco-x", Settings, [f"k={value}"]).k == [1, 20, 0.5]


@pytest.mark.parametrize("value", ["1,", "1,two", "1,[2", "1,???"])
def test_commas_with_something_else_between_are_one_message(value):
    with pytest.raises(ValueError, match=r"^k="):
        parse_settings("simco-x", Settings, [f"k={value}"])


@pytest.mark.parametrize("key, ending", [("outt", "; did you mean out?"), ("xyz", ".")])
def test_an_unknown_key_is_told_from_those_there_are(key, ending):
    with pytest.raises(ValueError, match=f"^{key} is no setting of simco-x") as raised:
        parse_settings("simco-x", Settings, [f"{key}=1"])
    assert str(raised.value).endswith(f"simco-x{ending} It knows out, query, k, data.*")


SHORT = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 15.77 GiB of which 1 GiB is free"
ADVICE = "end other programs that hold memory, and run it again"


class LoaderSettings(Settings):
    batch_size: int = 256
    device: str = "auto"


@pytest.mark.parametrize(
    "error, kind, message",
    [
        (
            torch.cuda.OutOfMemoryError(f"{SHORT}. Including {'other ' * 30}memory"),
            LoaderSettings,
            f"({SHORT}): lower batch_size or num_workers, or set device=cpu, or {ADVICE}",
        ),
        (MemoryError(), Settings, f"(MemoryError): {ADVICE}"),
        (
            RuntimeError("[x] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes."),
            LoaderSettings,
            "(can't allocate memory: you tried 9 bytes): lower batch_size or num_workers, or "
            + ADVICE,
        ),
    ],
)
def test_short_memory_is_one_message(error, kind, message, command, monkeypatch):
    def raises(thing, settings):
        raise error

    monkeypatch.setattr("simco_methods.settings.parse_settings", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        command("photos", kind, raises)
    assert ended.value.code == f"simco-x: out of memory {message}"


def test_what_a_loader_says_of_short_memory():
    worker = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
    error = RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")
    assert memory_fault(error) is None
    error.__cause__ = worker
    assert memory_fault(error) == "DataLoader worker (pid 7) is killed by signal: Killed"
    text = "Caught RuntimeError in DataLoader worker process 0.\nTraceback\n"
    text += "RuntimeError: CUDA error: out of memory\n"
    assert memory_fault(RuntimeError(text)) == "CUDA error: out of memory"
    assert memory_fault(RuntimeError("mat1 and mat2 cannot be multiplied")) is None
