"""Nearest images of a query, as a table and a sheet."""

import csv
import os

import numpy as np
import pytest
import torch
from PIL import Image

from simco_methods.embedding import parquet, run
from simco_methods.embedding.neighbours import Tile, draw_sheet, nearest
from simco_methods.embedding.run import embed
from simco_methods.wording import shortened
from tests.embedding.conftest import draw, parsed
from tests.embedding.test_embed import NAMES, expected


def read(out):
    with open(out / "neighbours.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("form", ["npy", "parquet"])
def test_the_nearest_by_cosine(form, weights, photos, tmp_path, monkeypatch):
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="needs the extra parquet")
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 16 * 4 * 4)  # four images in a row group
    draw(tmp_path / "query.png", 0)  # as a/1.png and f.png
    queries = [str(tmp_path / "query.png"), str(photos / "a" / "1.png")]
    settings = [f"out={tmp_path / 'out'}", f"format={form}", "neighbours=3"]
    out = embed(weights(), photos, parsed(*settings, f"query=[{','.join(queries)}]"))
    features = expected(weights(), photos)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosine = unit @ unit[NAMES.index("a/1.png")]
    order = [NAMES[row] for row in np.argsort(-cosine)]
    table = read(out)
    first, own = table[:3], table[3:]
    assert {line["path"] for line in first[:2]} == {"a/1.png", "f.png"}
    assert [line["path"] for line in first[2:]] == order[2:3]
    # The image itself is no neighbour of its own.
    assert [line["path"] for line in own] == ["f.png", *order[2:4]]
    for line in table:
        assert float(line["similarity"]) == pytest.approx(
            cosine[NAMES.index(line["path"])], abs=1e-5
        )
    assert min(Image.open(out / "neighbours.png").size) > 200
    # Asked for again, nothing is computed anew.
    monkeypatch.setattr(run, "_embed_all", None)
    embed(weights(), photos, parsed(*settings[:2], "neighbours=2", f"query={queries[0]}"))
    assert len(read(out)) == 2


def test_a_link_in_the_folder_is_not_its_own_neighbour(weights, photos, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("c", "d", "e"):
        os.symlink(photos / f"{name}.png", linked / f"{name}.png")
    out = f"out={tmp_path / 'out'}"
    with pytest.raises(
        ValueError, match=r"neighbours=3: .*linked has 2 image\(s\) beside .*c\.png"
    ):
        embed(weights(), linked, parsed(out, f"query={linked / 'c.png'}", "neighbours=3"))
    embed(weights(), linked, parsed(out, f"query={linked / 'c.png'}", "neighbours=2"))
    assert sorted(line["path"] for line in read(tmp_path / "out")) == ["d.png", "e.png"]


def test_too_few_that_can_be_read(weights, photos, tmp_path):
    (photos / "c.png").write_bytes(b"")
    draw(tmp_path / "query.png", 0)
    settings = [f"out={tmp_path / 'out'}", "on_error=skip", f"query={tmp_path / 'query.png'}"]
    with pytest.raises(ValueError, match="neighbours=10: 9 images of .*photos can be read"):
        embed(weights(), photos, parsed(*settings))
    assert (tmp_path / "out" / "features.npy").is_file()  # finished, for the next question
    assert not (tmp_path / "out" / "neighbours.csv").exists()


def test_parts_are_as_one():
    rows = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    queries = rows[:5] + 0.1
    scores, found = nearest([rows], queries, 7)
    in_parts = nearest(rows.split(9), queries, 7)
    assert torch.equal(found, in_parts[1])
    torch.testing.assert_close(scores, in_parts[0])
    assert nearest([rows], queries, 60)[1].shape == (5, 50)


def test_sheets_of_any_shape():
    picture = Image.new("RGB", (40, 10))
    row = [Tile(picture, ["$x_1", "0.5"], "red"), Tile(None, ["gone", ""])]
    wide = draw_sheet([row * 13, row[:1]]).get_size_inches()
    assert wide[0] < 15 and wide[1] > draw_sheet([row]).get_size_inches()[1]


def test_long_names_lose_their_middle():
    assert shortened("short", 18) == "short"
    assert shortened("a" * 20 + "0123456789.png", 18) == "aaaaa…23456789.png"
    assert len(shortened("x" * 300, 18)) == 18
