"""Files that are whole or not there, and valid JSON whatever is in them."""

import json

import pytest

from simco_methods.files import write_csv, write_json, write_text


def test_what_is_no_number_is_null_in_json(tmp_path):
    content = {"loss": float("nan"), "rows": [1.5, {"rate": float("inf")}], "name": "nan"}
    write_json(tmp_path / "a.json", content)

    def refuse(constant):
        raise AssertionError(constant)

    read = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert read == {"loss": None, "rows": [1.5, {"rate": None}], "name": "nan"}


def test_a_file_that_cannot_be_written_whole_is_as_it_was(tmp_path):
    write_text(tmp_path / "a.txt", "before")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.txt", "after\udcff")
    assert (tmp_path / "a.txt").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_rows_need_not_have_the_same_columns(tmp_path):
    write_csv(tmp_path / "a.csv", [{"a": 1}, {"a": 2, "b": 3}])
    assert (tmp_path / "a.csv").read_text() == "a,b\n1,\n2,3\n"
