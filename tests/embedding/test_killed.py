"""A folder's embedding that is killed or stopped goes on as if it had not been."""

import os
import signal
import sys

import numpy as np
import pytest

from simco_methods.embedding import run
from simco_methods.embedding.run import embed
from tests.embedding.conftest import draw, parsed
from tests.embedding.test_embed import everything
from tests.runner.test_survival import die_at, in_a_child

STORE, FILES = "simco_methods.embedding.store:GrowingStore", "simco_methods.embedding.store"
POINTS = {
    "before the first batch": (STORE, "add", 1),
    "after what was flushed": (STORE, "flush", 2),
    "before it writes down what was flushed": (FILES, "write_json", 2),
    "when all is read": (STORE, "finish", 1),
    "before the record": ("os", "replace", 5),
    "between two files": ("os", "replace", 7),
    "when all but the record is in its place": ("os", "replace", 9),
}


def _dies(source, folder, arguments, point):
    run._SECONDS = 0  # every batch is flushed
    die_at(*point)
    embed(source, folder, parsed(*arguments))


def same(out, expected):
    there, other = everything(out), everything(expected)
    for found in (there, other):
        del found["embedding.json"]  # of times
    assert there == other and (out / "embedding.json").is_file()
    assert not (out / ".part").exists()


@pytest.fixture
def straight(weights, photos, tmp_path):
    (photos / "a" / "2.png").write_bytes(b"")
    return embed(weights(), photos, parsed(f"out={tmp_path / 'straight'}", "on_error=skip"))


@pytest.mark.parametrize("point", POINTS)
def test_one_that_was_killed_ends_as_one_that_was_not(point, weights, photos, tmp_path, straight):
    arguments = [f"out={tmp_path / 'out'}", "on_error=skip"]
    status = in_a_child(_dies, weights(), photos, arguments, POINTS[point])
    assert status == -signal.SIGKILL
    embed(weights(), photos, parsed(*arguments))
    same(tmp_path / "out", straight)


def _fails(source, folder, arguments):
    signal.alarm(60)  # kills it, should it wait for its workers for ever
    try:
        embed(source, folder, parsed(*arguments))
    except OSError as error:
        sys.exit(3 if str(error).endswith("b/3.png: it is empty") else str(error))


def test_a_process_ends_where_its_workers_find_an_error(weights, photos, tmp_path):
    (photos / "b" / "3.png").write_bytes(b"")
    arguments = ["num_workers=2", f"out={tmp_path / 'out'}"]
    assert in_a_child(_fails, weights(), photos, arguments) == 3


def stops_at(monkeypatch, batch):
    """Ctrl-C in that batch; every batch is flushed. Returns the batches' paths."""
    seen, add = [], run.GrowingStore.add

    def counted(self, paths, features, skipped):
        if len(seen) == batch:
            raise KeyboardInterrupt
        seen.append(paths)
        add(self, paths, features, skipped)

    monkeypatch.setattr(run.GrowingStore, "add", counted)
    return seen


def test_ctrl_c(weights, photos, tmp_path, straight, monkeypatch, capsys):
    arguments = [f"out={tmp_path / 'out'}", "on_error=skip"]
    with monkeypatch.context() as patched:
        stops_at(patched, 2)
        with pytest.raises(KeyboardInterrupt):
            embed(weights(), photos, parsed(*arguments))
    assert "stopped after 8 of 10 images; the same command goes on" in capsys.readouterr().out
    assert os.listdir(tmp_path / "out") == [".part"]  # nothing that looks finished
    with monkeypatch.context() as patched:
        seen = stops_at(patched, -1)
        embed(weights(), photos, parsed(*arguments))
    assert seen == [["b/10.png", "b/2.png"]]
    assert "goes on after 8 of 10 images" in capsys.readouterr().out
    same(tmp_path / "out", straight)


@pytest.mark.parametrize("change", ["image", "encoder", "damage"])
def test_what_changed_meanwhile_is_begun_anew(
    change, weights, photos, tmp_path, monkeypatch, capsys
):
    out, number = f"out={tmp_path / 'out'}", 0
    with monkeypatch.context() as patched:
        stops_at(patched, 2)
        with pytest.raises(KeyboardInterrupt):
            embed(weights(), photos, parsed(out))
    if change == "image":
        draw(photos / "aa.png", 7)
    elif change == "encoder":
        number = 1
    else:
        os.truncate(tmp_path / "out" / ".part" / "features.npy", 300)
    capsys.readouterr()
    embed(weights(number), photos, parsed(out))
    said = capsys.readouterr().out
    assert ("begun anew" in said) == (change != "damage") and "goes on" not in said
    straight = embed(weights(number), photos, parsed(f"out={tmp_path / 'straight'}"))
    np.testing.assert_array_equal(
        *(np.load(folder / "features.npy") for folder in (tmp_path / "out", straight))
    )
