"""Folders of images to features: order, files, skipping, refusing."""

import csv
import json
import os
import sys

import numpy as np
import pytest

from simco_methods.embed import main
from simco_methods.embedding import parquet, run
from simco_methods.embedding.run import embed
from simco_methods.embedding.store import npy_header
from simco_methods.embedding.stored import StoredFeatures
from simco_methods.files import lock
from tests.embedding.conftest import SMALL, draw, parsed

ORDER = ["c", "d", "e", "f", "a/1", "a/2", "a/b/c/3", "b/1", "b/10", "b/2"]
NAMES = [f"{name}.png" for name in ORDER]


def paths(out, name="paths.csv"):
    with open(out / name, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.reader(file))[1:]


def expected(source, folder, names=NAMES):
    return parsed().load(str(source)).transform([str(folder / name) for name in names])


def everything(out):
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name[0] != "."}


def test_features_paths_and_facts(weights, photos, tmp_path, capsys):
    out = embed(weights(), photos, parsed(f"out={tmp_path / 'out'}"))
    features = np.load(out / "features.npy")
    assert features.dtype == np.float32 and features.shape == (10, 16)
    np.testing.assert_allclose(features, expected(weights(), photos), atol=1e-6)
    assert [path for (path,) in paths(out)] == NAMES
    record = json.loads((out / "embedding.json").read_text())
    assert (record["embedded"], record["skipped"], record["features"]) == (10, 0, 16)
    assert record["encoder"]["backbone"] == "micro_resnet" and "torch" in record["versions"]
    assert sorted(os.listdir(out)) == ["embedding.json", "features.npy", "paths.csv"]
    assert "10 x 16 features" in capsys.readouterr().out
    before = everything(out)
    embed(weights(), photos, parsed(f"out={out}", "batch_size=7", "num_workers=1"))
    assert capsys.readouterr().out == f"finished before: {out}\n" and everything(out) == before


def test_workers_and_half_precision(weights, photos, tmp_path):
    out = embed(
        weights(), photos, parsed(f"out={tmp_path / 'o'}", "num_workers=2", "dtype=float16")
    )
    features = np.load(out / "features.npy")
    assert features.dtype == np.float16
    # The same numbers as by this process, in batches of the same size.
    alone = embed(weights(), photos, parsed(f"out={tmp_path / 'alone'}"))
    np.testing.assert_array_equal(features, np.load(alone / "features.npy").astype(np.float16))


def test_the_default_place_is_beside_the_encoder(weights, photos):
    out = embed(weights(), photos, parsed())
    assert out == weights().with_name("net0-embed") / "photos" and (out / "features.npy").is_file()


ODD = ["a,b.png", 'a"b.png', "line\nbreak.png", os.fsdecode(b"no-\xff-unicode.png"), "\u82b1.png"]


@pytest.fixture
def odd(tmp_path):
    for number, name in enumerate(ODD):
        draw(tmp_path / "odd" / name, number)
    return tmp_path / "odd"


def test_odd_names_keep_their_place(weights, odd, tmp_path, recwarn):
    query = f"query={odd / ODD[-1]}"
    out = embed(weights(), odd, parsed(f"out={tmp_path / 'out'}", query, "neighbours=4"))
    found = [path for (path,) in paths(out)]
    assert sorted(found) == sorted(ODD)
    np.testing.assert_allclose(
        np.load(out / "features.npy"), expected(weights(), odd, found), atol=1e-6
    )
    assert (out / "neighbours.png").is_file() and not [w for w in recwarn if "Glyph" in str(w)]


def test_odd_names_in_parquet(weights, odd, tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    out = embed(weights(), odd, parsed(f"out={tmp_path / 'out'}", "format=parquet"))
    shown = sorted(name.encode(errors="backslashreplace").decode() for name in ODD)
    assert sorted(StoredFeatures(out).paths(range(5)).values()) == shown


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parquet_holds_what_npy_does(dtype, weights, photos, tmp_path, monkeypatch):
    table = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")
    plain = embed(weights(), photos, parsed(f"out={tmp_path / 'npy'}", f"dtype={dtype}"))
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 16 * 4 * 4)
    out = embed(
        weights(), photos, parsed(f"out={tmp_path / 'pq'}", "format=parquet", f"dtype={dtype}")
    )
    assert sorted(os.listdir(out)) == ["embedding.json", "features.parquet"]
    file = table.ParquetFile(out / "features.parquet")
    assert file.num_row_groups == (3 if dtype == "float32" else 2)
    found = file.read().to_pydict()
    assert found["path"] == NAMES
    features = np.load(plain / "features.npy")
    np.testing.assert_array_equal(np.array(found["feature"], dtype=dtype), features)
    np.testing.assert_array_equal(np.concatenate(list(StoredFeatures(out).parts())), features)


def test_parquet_without_pyarrow_is_refused_first(weights, photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow .*simco-methods\[parquet\].*format=npy"):
        embed(weights(), photos, parsed(f"out={tmp_path / 'out'}", "format=parquet"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shape", [(0, 1), (1, 512), (10**12, 10**6)])
def test_a_header_is_of_one_length_and_read_by_numpy(shape, tmp_path):
    for dtype in map(np.dtype, ("float16", "float32")):
        header = npy_header(*shape, dtype)
        assert len(header) == 128
        with open(tmp_path / "x", "w+b") as file:
            file.write(header)
            file.seek(0)
            assert np.lib.format.read_magic(file) == (1, 0)
            assert np.lib.format.read_array_header_1_0(file) == (shape, False, dtype)


def test_unreadable_images_are_left_out_and_listed(weights, photos, tmp_path, capsys):
    (photos / "a" / "1.png").write_bytes(b"")
    (photos / "b" / "3.png").write_text("no image")
    source = weights()
    with pytest.raises(OSError, match=r"cannot read the image .*a/1\.png: it is empty"):
        embed(source, photos, parsed(f"out={tmp_path / 'out'}"))
    out = embed(source, photos, parsed(f"out={tmp_path / 'out'}", "on_error=skip"))
    assert "goes on after 4 of 11 images" in capsys.readouterr().out
    kept = [name for name in NAMES if name != "a/1.png"]
    assert [path for (path,) in paths(out)] == kept
    np.testing.assert_allclose(
        np.load(out / "features.npy"), expected(source, photos, kept), atol=1e-6
    )
    assert [line[0] for line in paths(out, "skipped.csv")] == ["a/1.png", "b/3.png"]
    assert paths(out, "skipped.csv")[0][1] == "it is empty"
    assert json.loads((out / "embedding.json").read_text())["skipped"] == 2


def test_nothing_is_left_where_nothing_can_be_read(weights, tmp_path):
    folder = tmp_path / "bad"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.png").write_bytes(b"")
    for setting, message in (("raise", "it is empty"), ("skip", "none of the 6 images can be")):
        with pytest.raises((OSError, ValueError), match=message):
            embed(weights(), folder, parsed(f"out={tmp_path / 'out'}", f"on_error={setting}"))
        assert not (tmp_path / "out").exists()


def test_features_of_something_else_are_not_replaced(weights, photos, tmp_path):
    out = embed(weights(), photos, parsed(f"out={tmp_path / 'out'}"))
    before = everything(out)
    for source, settings, said in (
        (weights(1), [], "of another encoder"),
        (weights(), ["dtype=float16"], "of another dtype"),
        (weights(), ["format=parquet"], "in another format"),
        (weights(), ["mean=[0.1,0.2,0.3]"], "of another preprocessing"),
    ):
        with pytest.raises(ValueError, match=f"holds features {said}.*: set out=FOLDER"):
            embed(source, photos, parsed(f"out={out}", *settings))
    os.utime(photos / "c.png")  # another image may have the same name and size
    with pytest.raises(ValueError, match="of other images, or of these before they changed"):
        embed(weights(), photos, parsed(f"out={out}"))
    assert everything(out) == before and not (out / ".part").exists()
    (out / "features.npy").unlink()
    with pytest.raises(ValueError, match="without features.npy"):
        embed(weights(), photos, parsed(f"out={out}"))


def test_images_that_come_while_it_reads_are_noticed(weights, photos, tmp_path, monkeypatch):
    collate = run._collate

    def come(items):
        draw(photos / "b" / "z.png", 5)
        return collate(items)

    monkeypatch.setattr(run, "_collate", come)
    with pytest.raises(ValueError, match="changed while they were read"):
        embed(weights(), photos, parsed(f"out={tmp_path / 'out'}"))
    monkeypatch.undo()
    out = embed(weights(), photos, parsed(f"out={tmp_path / 'out'}"))
    assert len(np.load(out / "features.npy")) == 11


def test_features_beyond_half_precision_are_refused(weights, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(run.Encoder, "forward", lambda self, x: self.backbone(x) * 1e9)
    with pytest.raises(ValueError, match=r"c\.png are not finite in float16; take dtype=float32"):
        embed(weights(), photos, parsed(f"out={tmp_path / 'out'}", "dtype=float16"))
    assert not (tmp_path / "out").exists()


def test_what_does_not_fit_is_said_in_a_line(weights, photos, tmp_path, monkeypatch, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "x.txt").write_text("")
    out = tmp_path / "out"
    cases = [
        ([tmp_path / "none"], "there is no folder .*none"),
        ([tmp_path / "empty"], r"no image \(.*empty.*it holds 1 \.txt files"),
        ([photos / "c.png"], r"there is no folder .*c\.png"),
        ([photos, "out=" + str(photos / "out")], "results would lie among the images"),
        ([photos, "format=hdf5"], "format='hdf5': must be one of npy, parquet"),
        ([photos, "neighbours=0"], "neighbours=0: must be a whole number from 1 to 100"),
        ([photos, "neighbours=3"], "neighbours=3: of an image; name it by query=IMAGE"),
        ([photos, "queri=x.png"], "did you mean query"),
        ([photos, f"query={tmp_path / 'q.png'}"], "cannot read the image .*q.png"),
        ([photos, f"query={photos / 'c.png'}"], "neighbours=10: .*photos has 9 image"),
        ([], "FOLDER is missing"),
    ]
    for things, message in cases:
        settings = [*SMALL, f"out={out}"] if things else []
        arguments = [weights(), *things[:1], *settings, *things[1:]]
        monkeypatch.setattr(sys, "argv", ["simco-embed", *map(str, arguments)])
        with pytest.raises(SystemExit, match=f"(?s)simco-embed: .*{message}"):
            main()
        assert not out.exists() and not (photos / "out").exists()
    held = lock(out / ".part" / "lock")
    with pytest.raises(ValueError, match="another process writes features to"):
        embed(weights(), photos, parsed(f"out={out}"))
    os.close(held)
