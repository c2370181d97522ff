"""Tests of the ``key=value`` settings of commands, and of what commands have in common."""

import os
import sys
from dataclasses import dataclass

import pytest

from simco_methods.command import run_command
from simco_methods.config.checks import each, number, optional, text
from simco_methods.settings import parse_settings, setting


@dataclass
class Settings:
    out: str | None = setting(None, optional(text))
    k: list[float] = setting([1], each(number(0)), listed=True, commas=True)


@pytest.mark.parametrize("value", ["*.jpg", "[a", "@x", "???", "${none}", "\udcff"])
def test_what_yaml_cannot_read_is_one_message(value):
    with pytest.raises(ValueError, match="cannot be read as YAML") as raised:
        parse_settings("simco-x", Settings, ["out=there", f"out={value}"])
    assert str(raised.value).startswith(f"out={value} ")


def test_quotes_within_quotes_are_text():
    assert parse_settings("simco-x", Settings, ["out='*.jpg'"]).out == "*.jpg"


def test_a_path_with_a_number_sign_is_whole():
    assert parse_settings("simco-x", Settings, ["out=it's #1/a b"]).out == "it's #1/a b"


def test_an_interruption_while_modules_are_loaded_has_its_status(monkeypatch):
    def interrupted(program):
        raise KeyboardInterrupt

    monkeypatch.setattr("simco_methods.command.check_host", interrupted)
    monkeypatch.setattr(sys, "argv", ["simco-x", "photos"])
    with pytest.raises(SystemExit) as ended:
        run_command("simco-x", "", lambda: (Settings, lambda thing, settings: None))
    assert ended.value.code == 130


def test_a_name_that_is_no_unicode_is_printed(monkeypatch, capfdbinary):
    stdout = open(os.dup(1), "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "argv", ["simco-x", "photos\udcff"])
    with stdout:
        run_command("simco-x", "", lambda: (Settings, lambda thing, settings: print(thing)))
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
    assert str(raised.value).endswith(f"simco-x{ending} It knows out, k")
