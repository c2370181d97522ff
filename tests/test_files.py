"""Files that are whole or not there, and valid JSON whatever is in them."""

import json
import os
import platform

import pytest

from simco_methods.files import rounded, together, whole, write_csv, write_json, write_text
from tests.helpers import run_script


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


# A process that is killed while it writes; it says which number it had.
KILLED = """
import os
from pathlib import Path
from simco_methods.files import together, whole

with {writer} as part:
    (part / "a.txt" if part.is_dir() else part).write_text("half")
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    "writer, again",
    [
        ("together(Path('out'))", lambda out: together(out)),
        ("whole(Path('out/a[1].txt'))", lambda out: whole(out / "a[1].txt")),
    ],
)
def test_what_a_killed_process_has_left_goes_with_the_next(writer, again, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    done = run_script("-c", KILLED.format(writer=writer), cwd=tmp_path)
    (left,) = out.iterdir()
    number = int(done.stdout)
    assert left.name.endswith(f".{number}@{platform.node()}.part")
    # Of a process that runs, and of another machine, which nobody here knows anything of.
    stay = [left.with_name(left.name.replace(str(number), str(os.getppid())))]
    stay.append(left.with_name(left.name.replace(platform.node(), "elsewhere")))
    for path in stay:
        path.touch()
    # What this process's number has left was left by another one.
    own = left.with_name(left.name.replace(str(number), str(os.getpid())))
    own.mkdir()
    (own / "old.txt").touch()
    with again(out) as part:
        (part / "b.txt" if part.is_dir() else part).write_text("all")
    (made,) = set(out.iterdir()) - set(stay)
    assert made.read_text() == "all"


def test_a_folder_that_a_killed_process_began_is_written_whole(tmp_path):
    run_script("-c", KILLED.format(writer="together(Path('new'))"), cwd=tmp_path)
    with together(tmp_path / "new") as part:
        (part / "b.txt").write_text("all")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["b.txt"]


def test_numbers_are_written_as_they_are_read(tmp_path):
    """Accuracies to 4 decimals; of others all that a float32 holds, also next to 1."""
    row = {"val_acc1": 100 * 2 / 3, "knn_acc5": 29.16666603088379, "loss": 3.9241917133331299}
    row |= {"train_penalty_entropy": 0.9999998211860657, "epoch": 3, "lr": 1e-7 / 3, "name": "x"}
    write_csv(tmp_path / "a.csv", [row, {"val_acc1": float("nan")}])
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[1] == "66.6667,29.1667,3.9241917,0.99999982,3,3.3333333e-08,x"
    assert lines[2].startswith("nan,")
    share = 200 / 3
    found = rounded({"last": {"acc1": share}, "per_class": {"a loss": share}, "all": [share]})
    expected = {"last": {"acc1": 66.6667}, "per_class": {"a loss": 66.6667}, "all": [66.666667]}
    assert found == expected
