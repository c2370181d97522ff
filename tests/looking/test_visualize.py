"""One page of an encoder: what is on it, what is not and why, and that it needs nothing else."""

import csv
import re
import sys

import numpy as np
import pytest
from PIL import Image

from simco_methods.looking.images import spread
from simco_methods.looking.map import palette
from simco_methods.looking.run import visualize
from simco_methods.visualize import main
from tests.embedding.conftest import SMALL, draw
from tests.looking.conftest import QUICK, parsed

OF_NOTHING = [*SMALL, *QUICK[2:]]  # with weights of which nothing is known
FILES = ["map.csv", "map.png", "neighbours.csv", "neighbours.png", "views.png", "curves.png"]


def rows(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def sections(folder):
    """Title to content of a page's sections."""
    html = (folder / "visualize.html").read_text(encoding="utf-8")
    return dict(part.split("</h2>", 1) for part in html.split("<h2>")[1:])


def test_everything_is_on_the_page(page):
    assert sorted(path.name for path in page.iterdir()) == sorted([*FILES, "visualize.html"])
    parts = sections(page)
    assert list(parts) == ["Map", "Neighbours", "What the network sees", "Training"]
    assert not any("Not made" in part for part in parts.values())
    table = rows(page / "map.csv")
    assert len(table) == 40 and {row["class"] for row in table} == set(map(str, range(10)))
    named = re.findall(r"<circle [^>]*><title>(\d: image \d+)</title>", parts["Map"])
    assert sorted(named) == sorted(f"{row['class']}: {row['image']}" for row in table)
    assert re.findall(r"</i>(\d)</button>", parts["Map"]) == [str(number) for number in range(10)]
    assert (
        "t-SNE of unit features, perplexity 13, seed 0; digits, test images, 40 of 360"
        in (parts["Map"])
    )
    assert len(rows(page / "neighbours.csv")) == 2 * 3
    assert "then 2 draws of each of the training&#x27;s 2 views" in parts["What the network sees"]
    assert parts["Training"].count("<tr>") == 1 + 2 and "<th>epochs</th>" in parts["Training"]
    assert "online kNN: " in parts["Training"] or "val_knn_acc1" not in parts["Training"]
    for name in FILES[1::2]:
        assert min(Image.open(page / name).size) > 100


def test_it_needs_nothing_beside_it(page):
    html = (page / "visualize.html").read_text(encoding="utf-8")
    sources = re.findall(r"""(?:src|href|url\()\s*=?\s*['"]?([^'"\s)>]+)""", html)
    assert len(sources) == 3 and all(s.startswith("data:image/png;base64,") for s in sources)
    assert "http" not in re.sub(r"base64,[^']+", "", html) and "@import" not in html


def test_the_same_seed_draws_the_same(digits_run, page, tmp_path):
    settings = [*QUICK, "images=40", "method=tsne"]
    again = visualize(digits_run, parsed(*settings, f"out={tmp_path / 'again'}"))
    for name in set(FILES) - {"curves.png"}:
        assert (again / name).read_bytes() == (page / name).read_bytes(), name
    other = visualize(
        digits_run, parsed(*settings[:-1], "method=pca", "seed=1", f"out={tmp_path / 'other'}")
    )
    names = [[row["image"] for row in rows(out / "map.csv")] for out in (page, other)]
    assert names[0] != names[1]
    assert "the two main directions of unit features" in sections(other)["Map"]


@pytest.mark.slow
def test_umap(digits_run, tmp_path):
    pytest.importorskip("umap", reason="needs the extra umap")
    outs = [
        visualize(digits_run, parsed(*QUICK, "images=30", f"method={m}", f"out={tmp_path / m}"))
        for m in ("umap", "auto")
    ]
    assert rows(outs[0] / "map.csv") == rows(outs[1] / "map.csv")
    assert "UMAP by cosine, 15 neighbours, seed 0" in sections(outs[1])["Map"]


def test_without_umap(digits_run, photos, weights, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match=r"needs umap-learn .*simco-methods\[umap\].*method=tsne"):
        visualize(digits_run, parsed(*QUICK, "method=umap", f"out={tmp_path / 'out'}"))
    assert not (tmp_path / "out").exists()
    settings = [*OF_NOTHING, f"folder={photos}", f"out={tmp_path / 'out'}"]
    out = visualize(weights(), parsed(*settings))
    assert "perplexity 3 (umap-learn is not installed), seed" in sections(out)["Map"]


def test_any_folder_and_an_encoder_of_which_nothing_is_known(weights, photos, tmp_path):
    settings = [*OF_NOTHING, "method=pca", f"folder={photos}", f"out={tmp_path / 'out'}"]
    queried = [*settings, f"query=[{photos / 'c.png'},{photos / 'f.png'}]", "neighbours=20"]
    out = visualize(weights(), parsed(*queried))
    parts = sections(out)
    assert "no class is known" in parts["Map"].lower() and "legend" not in parts["Map"]
    assert list(rows(out / "map.csv")[0]) == ["image", "x", "y"]
    assert "What the training saw is not known: the encoder" in parts["What the network sees"]
    assert "Not made: the encoder was not loaded from a run" in parts["Training"]
    assert "There are 9 beside it, 20 were asked for" in parts["Neighbours"]
    found = rows(out / "neighbours.csv")
    assert {row["query"] for row in found} == {str(photos / "c.png"), str(photos / "f.png")}
    assert all(row["image"] != "c.png" for row in found if row["query"].endswith("c.png"))
    assert [row["image"] for row in found if row["query"].endswith("f.png")][0] == "a/1.png"
    assert not (out / "curves.png").exists()
    # Of class folders alone, and some that cannot be read.
    for name in "cdef":
        (photos / f"{name}.png").unlink()
    (photos / "a" / "2.png").write_bytes(b"")
    with pytest.raises(OSError, match=r"a/2\.png: it is empty"):
        visualize(weights(), parsed(*settings))
    assert len(rows(out / "map.csv")) == 10  # as it was
    visualize(weights(), parsed(*settings, "on_error=skip"))
    assert [row["class"] for row in rows(out / "map.csv")] == ["a"] * 2 + ["b"] * 3
    assert "6 of 6, 1 of them cannot be read" in sections(out)["Map"]


def test_what_cannot_be_made_is_named_and_the_rest_is_made(digits_run, weights, tmp_path):
    draw(tmp_path / "one" / "x.png", 0)
    out = f"out={tmp_path / 'out'}"
    given = [*OF_NOTHING, "method=pca"]
    one = visualize(weights(), parsed(*given, f"folder={tmp_path / 'one'}", out))
    parts = sections(one)
    assert "Not made: a map takes 4 images or more, there are 1" in parts["Map"]
    assert "Not made: neighbours take 2 images or more, there are 1" in parts["Neighbours"]
    assert "<img" in parts["What the network sees"]
    # The same place again: nothing of the first page stays.
    runs = visualize(weights(), parsed(*given, f"runs={digits_run}", out))
    parts = sections(runs)
    assert "Not made: which images? Set data.dataset=NAME" in parts["Map"]
    assert "<img" in parts["Training"]
    assert sorted(path.name for path in runs.iterdir()) == ["curves.png", "visualize.html"]
    with pytest.raises(ValueError, match="there is nothing to draw: which images?"):
        visualize(weights(), parsed(*OF_NOTHING, f"out={tmp_path / 'none'}"))
    assert not (tmp_path / "none").exists()


def test_images_that_look_alike_have_no_map(weights, tmp_path):
    for number in range(5):
        draw(tmp_path / "same" / f"{number}.png", 0)
    settings = [*OF_NOTHING, "method=pca", f"folder={tmp_path / 'same'}", f"out={tmp_path / 'out'}"]
    assert (
        "Not made: all images have the same features"
        in (sections(visualize(weights(), parsed(*settings)))["Map"])
    )


def test_what_was_asked_for_and_is_not_there_is_an_error(digits_run, photos, tmp_path, monkeypatch):
    empty, begun = tmp_path / "empty", tmp_path / "begun"
    for folder in (empty, begun):
        folder.mkdir()
    (begun / "metrics.csv").write_text("epoch,train_nce_loss\n")
    out = tmp_path / "out"
    for arguments, message in (
        (["query=none.png"], "cannot read the image none.png"),
        ([f"folder={tmp_path / 'none'}"], "there is no folder .*none"),
        ([f"folder={empty}"], "no image .*empty"),
        (["data.dataset=custom", "data.train_path=none"], "none"),
        (["split=val", "data.dataset=custom", f"data.train_path={photos}"], "no data.val_path"),
        ([f"runs={tmp_path / 'none'}"], "there is no folder .*none of a run"),
        ([f"runs={empty}"], "empty holds no run"),
        ([f"runs={begun}"], "begun has no finished epoch yet"),
        ([f"folder={photos}", "split=val"], "a folder has no splits"),
        ([f"folder={photos}", "data.dataset=digits"], "both say which images"),
        ([f"folder={photos}", f"out={photos / 'out'}"], "would lie among the images"),
        (["method=mds"], "must be one of auto, umap, tsne, pca"),
        (["images=0"], "images=0: must be a whole number of at least 1"),
    ):
        given = [*QUICK, f"out={out}", *arguments]
        monkeypatch.setattr(sys, "argv", ["simco-visualize", str(digits_run), *given])
        with pytest.raises(SystemExit, match=f"simco-visualize: .*{message}"):
            main()
        assert not out.exists() and not (photos / "out").exists()


def test_each_class_has_its_share():
    labels = np.repeat([0, 1, 2, -1], [600, 300, 99, 1])
    counts = np.bincount(labels[spread(labels, 100, 0)] + 1, minlength=4)
    assert counts.sum() == 100 and abs(counts - [0, 60, 30, 10]).max() <= 1
    assert (spread(labels, 100, 0) == spread(labels, 100, 0)).all()
    assert (spread(labels, 100, 0) != spread(labels, 100, 1)).any()
    assert (spread(labels, 1000, 0) == np.arange(1000)).all()
    balanced = np.repeat(np.arange(50), 20)
    assert (np.bincount(balanced[spread(balanced, 100, 3)]) == 2).all()


@pytest.mark.parametrize("classes", [2, 10, 20, 21, 1000])
def test_a_colour_for_each_class(classes):
    colours = palette(range(-1, classes), classes)
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours.values())
    assert len(set(colours.values())) > 0.9 * classes
    assert all(colours[label] != colours[label + 1] for label in range(-1, classes - 1))
    assert len(set(palette([-1], 0).values())) == 1
