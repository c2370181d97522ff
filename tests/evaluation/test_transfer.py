"""simco-transfer: which data sets are found, what the table has, and how it goes on."""

import json
from collections import Counter

import pytest
import torch

from simco_methods.data import images as images_module
from simco_methods.encoder import load_encoder
from simco_methods.encoder.loading import build
from simco_methods.evaluation import loading
from simco_methods.evaluation import transfer as module
from simco_methods.evaluation.linear import probe
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.local import local_datasets
from simco_methods.evaluation.transfer import transfer
from simco_methods.evaluation.transfer_settings import TransferSettings
from simco_methods.host.knn import knn_accuracy
from simco_methods.settings import described, parse_settings
from tests.data.test_folders import fill
from tests.data.test_labels import tiny_imagenet
from tests.evaluation.conftest import write_digits

QUICK = "epochs=2", "lr=[0.1]", "num_workers=0"


def settings(*arguments):
    return parse_settings("simco-transfer", TransferSettings, [*QUICK, *arguments])


def results(folder):
    return json.loads((folder / "results.json").read_text())


# ---- what is found -------------------------------------------------------------------------------


def paths(dataset):
    return [dataset.data["dataset"], *(dataset.data.get(f"{s}_path") for s in ("train", "val"))]


def test_what_is_found_in_a_folder(tmp_path):
    for part in ("train", "test", "val"):
        write_digits(tmp_path / "all three" / part, 1)
    write_digits(tmp_path / "imagenet100" / "train", 1)
    write_digits(tmp_path / "imagenet100" / "val", 1)
    write_digits(tmp_path / "one side" / "train", 1)
    write_digits(tmp_path / "unsplit", 1)
    (tmp_path / "linked").symlink_to(tmp_path / "unsplit")
    # No data sets: images of no class, of one, none, hidden, and images too deep.
    (write_digits(tmp_path / "x", 1, classes=[3]) / "digit 3").rename(tmp_path / "flat")
    write_digits(tmp_path / "one class", 1, classes=[1])
    write_digits(tmp_path / ".hidden", 1)
    write_digits(tmp_path / "deep" / "below", 1)
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "more" / "stl10_binary").mkdir(parents=True)
    (tmp_path / "more" / "train_32x32.mat").write_text("")
    found, others = local_datasets(tmp_path)
    root, more, unsplit = str(tmp_path), str(tmp_path / "more"), tmp_path / "unsplit"
    one, three, imagenet = (tmp_path / name for name in ("one side", "all three", "imagenet100"))
    assert {name: paths(dataset) for name, dataset in found.items()} == {
        "digits": ["digits", None, None],
        "cifar10": ["cifar10", root, root],
        "all three": ["custom", str(three / "train"), str(three / "test")],
        "imagenet100": ["custom", str(imagenet / "train"), str(imagenet / "val")],
        "linked": ["custom", str(tmp_path / "linked"), None],
        "svhn": ["svhn", more, more],
        "stl10": ["stl10", more, more],
        "one side": ["custom", str(one / "train"), None],
        "unsplit": ["custom", str(unsplit), None],
    }
    assert [name for name, dataset in found.items() if not dataset.split] == [
        *("linked", "one side", "unsplit")
    ]
    assert others == ["deep", "flat", "one class", "x"]


def test_the_folder_itself_is_one(tmp_path):
    for part in ("train", "val"):
        write_digits(tmp_path / "split" / part, 1)
    write_digits(tmp_path / "unsplit", 1)
    found, others = local_datasets(tmp_path / "split")
    assert list(found) == ["digits", "split"] and found["split"].split and not others
    found, others = local_datasets(tmp_path / "unsplit")
    assert list(found) == ["digits", "unsplit"] and not found["unsplit"].split and not others


def test_sets_whose_labels_are_in_files_are_found(tmp_path):
    tiny_imagenet(tmp_path / "tiny")
    fill(tmp_path, *(f"signs/Train/{name}/0.png" for name in "ab"), "signs/Test/0.png")
    (tmp_path / "signs/Test.csv").write_text("ClassId,Path\na,Test/0.png\n")
    fill(tmp_path, *(f"within/Train/{name}/0.png" for name in "ab"), "within/Test/0.png")
    (tmp_path / "within/Test/Test.csv").write_text("Filename;Width;ClassId\n0.png;9;b\n")
    fill(tmp_path, "flat/0.png", "flat/1.png")
    (tmp_path / "flat/labels.csv").write_text("0.png,a\n1.png,b\n")
    # Without a file: nothing to test on, and nothing at all.
    fill(tmp_path, *(f"untold/TRAIN/{name}/0.png" for name in "ab"), "untold/test/0.png")
    fill(tmp_path, "images/test/images/0.png", "images/train/images/0.png")
    found, others = local_datasets(tmp_path)
    told = {name: {**dataset.data, "split": dataset.split} for name, dataset in found.items()}
    del told["digits"]
    for data in told.values():
        assert data.pop("dataset") == "custom"
        for key, value in data.items():
            data[key] = value if key == "split" else value.removeprefix(f"{tmp_path}/")
    assert told == {
        "tiny": {"train_path": "tiny/train", "val_path": "tiny/val", "split": True},
        "signs": {
            "train_path": "signs/Train",
            "val_path": "signs/Test",
            "val_labels": "signs/Test.csv",
            "split": True,
        },
        "within": {
            "train_path": "within/Train",
            "val_path": "within/Test",
            "val_labels": "within/Test/Test.csv",
            "split": True,
        },
        "flat": {"train_path": "flat", "split": False},
        "untold": {"train_path": "untold/TRAIN", "split": False},
    }
    assert others == ["images"]
    counts = {
        name: [len(side.labels) for side in (sides.train, sides.test)]
        for name in ("tiny", "signs", "within")
        for sides in [found[name].sides(0.2, None)]
    }
    assert counts == {"tiny": [4, 2], "signs": [2, 1], "within": [2, 1]}


def test_names_are_unlike(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    write_digits(tmp_path / "cifar10" / "train", 1)
    write_digits(tmp_path / "digits", 1)
    found, _ = local_datasets(tmp_path)
    assert list(found) == ["digits", "cifar10", "cifar10-2", "digits-2"]
    assert found["cifar10-2"].name == "cifar10-2"


def test_which_of_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert list(settings().found()[0]) == ["digits"]
    write_digits(tmp_path / "datasets" / "mine", 1)
    assert list(settings().found()[0]) == ["digits", "mine"]
    assert list(settings("datasets=mine").found()[0]) == ["mine"]
    with pytest.raises(ValueError, match="datasets=cub,x: not found in datasets; .* digits, mine$"):
        settings("datasets=cub,mine,x").found()
    with pytest.raises(FileNotFoundError, match="there is no folder nowhere"):
        settings("data=nowhere").found()


# ---- the table -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_digits(folder / "broken" / "train", 4)
    write_digits(folder / "broken" / "test", 4, classes=[0, 7])
    write_digits(folder / "split" / "train", 20)
    write_digits(folder / "split" / "test", 8, first=20)
    write_digits(folder / "unsplit", 15)
    return folder


def test_a_table_of_all_that_is_found(digits_run, data, tmp_path, capsys):
    with pytest.raises(
        ValueError, match=r"^1 of 4 data set\(s\) failed\nbroken: .* digit 7, which"
    ):
        transfer(str(digits_run), settings(f"data={data}", f"out={tmp_path}"))
    said = capsys.readouterr().out
    rows = results(tmp_path)["datasets"]
    assert list(rows) == ["digits", "broken", "split", "unsplit"]
    assert "digit 7" in rows["broken"]["error"]
    counts = {n: (r["train"], r["test"], r["classes"]) for n, r in rows.items() if "train" in r}
    assert counts == {"digits": (1437, 360, 10), "split": (60, 24, 3), "unsplit": (36, 9, 3)}
    # Each number is what its own command gives.
    encoder = load_encoder(digits_run)
    sides = local_datasets(data)[0]["split"].sides(0.2, None)
    arguments = [*QUICK, "features=cached"]
    linear = probe(encoder, sides, parse_settings("x", LinearSettings, arguments)).scores
    row = rows["split"]
    assert row["linear_acc1"] == pytest.approx(linear.acc1, abs=1e-4)
    assert not [key for key in row if "acc5" in key] and rows["digits"]["linear_acc5"] > 5

    def knn(encoder):
        sets = [
            (torch.from_numpy(encoder.transform(side.images)), torch.from_numpy(side.labels))
            for side in (sides.train, sides.test)
        ]
        return knn_accuracy(*sets[0], *sets[1], k=20, num_classes=3)

    assert row["knn_acc1"] == pytest.approx(knn(encoder)[0])
    torch.manual_seed(encoder.card.settings["seed"])  # of the run, which it started from
    encoder.backbone = build(encoder.card).eval()
    assert row["untrained_knn_acc1"] == pytest.approx(knn(encoder)[0])

    table = (tmp_path / "table.md").read_text()
    assert table in said
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert table.count("untrained kNN: ") == table.count("linear accuracy: ") == 1
    assert lines[4][7:9] == ["", lines[4][8]] and lines[2][7]  # top-5
    assert lines[0][:6] == [
        "data set",
        "images",
        "to test on",
        "classes",
        "kNN accuracy (%)",
        "untrained kNN (%)",
    ]
    assert lines[4][:5] == ["split", "60", "24", "3", f"{row['knn_acc1']:.2f}"]
    assert lines[3][:2] == ["broken", ""] and lines[3][-1].startswith("failed: ")
    assert lines[5][-1] == (
        "no data.val_path: 0.2 of each class is held out to test on; "
        "top-5 accuracies are left out: with 3 classes they are always 100 %"
    )
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 5


def test_images_are_read_once_and_forwarded_once(digits_run, data, tmp_path, monkeypatch):
    """For kNN and the linear classifier; beside it, training images are read for its crops."""
    read, forwarded = Counter(), []
    load, features = images_module.read_rgb, loading._features_of_each

    def read_rgb(path):
        read[path] += 1
        return load(path)

    def features_of_each(backbones, loader, device, what):
        found, labels = features(backbones, loader, device, what)
        forwarded.append(len(labels) * len(backbones))
        return found, labels

    monkeypatch.setattr(images_module, "read_rgb", read_rgb)
    monkeypatch.setattr(loading, "_features_of_each", features_of_each)
    given = f"data={data}", "datasets=split", "lr=[0.1,0.3]"
    transfer(str(digits_run), settings(*given, "untrained=false", f"out={tmp_path}"))
    sides = local_datasets(data)[0]["split"].sides(0.2, None)
    assert {read[path] for path in sides.test.images} == {1}
    assert {read[path] for path in sides.train.images} == {2}
    assert forwarded == [60, 24]


def test_the_share_that_is_tested_on_is_that_of_the_encoder_s_training(
    digits_run, data, tmp_path, monkeypatch
):
    given = f"data={data}", "datasets=unsplit", "untrained=false"
    transfer(str(digits_run), settings(*given, f"out={tmp_path / 'a'}"))
    load = TransferSettings.load

    def trained(self, source):
        encoder = load(self, source)
        encoder.card.settings["data"]["test_share"] = 0.4
        return encoder

    monkeypatch.setattr(TransferSettings, "load", trained)
    transfer(str(digits_run), settings(*given, f"out={tmp_path / 'b'}"))
    transfer(str(digits_run), settings(*given, "test_share=0.2", f"out={tmp_path / 'c'}"))
    tested = {name: results(tmp_path / name)["datasets"]["unsplit"]["test"] for name in "abc"}
    assert tested == {"a": 9, "b": 18, "c": 9}


def test_it_goes_on_where_it_was_interrupted(digits_run, data, tmp_path, monkeypatch, capsys):
    asked = []

    def interrupted(encoder, sides, settings, known):
        asked.append(len(sides.classes))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return probe(encoder, sides, settings, known=known)

    monkeypatch.setattr(module, "probe", interrupted)
    out, given = tmp_path / "out", [f"data={data}", "datasets=split,unsplit", "untrained=false"]
    with pytest.raises(KeyboardInterrupt):
        transfer(str(digits_run), settings(*given, f"out={out}"))
    first = results(out)["datasets"]
    assert list(first) == ["split"] and "untrained" not in (out / "table.md").read_text()
    # The same settings on the other images, wherever and however they are worked at.
    transfer(str(digits_run), settings(*given, f"out={out}", "device=cpu"))
    assert len(asked) == 3 and "split: finished before" in capsys.readouterr().out
    assert results(out)["datasets"]["split"] == first["split"]
    transfer(
        str(digits_run), settings(f"data={data}", "datasets=split", "untrained=false", f"out={out}")
    )
    assert len(asked) == 3 and list(results(out)["datasets"]) == ["split", "unsplit"]


def test_images_that_have_changed_are_evaluated_anew(digits_run, tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    write_digits(data / "mine" / "train", 8)
    test = write_digits(data / "mine" / "test", 3, first=8)
    given = f"data={data}", "datasets=mine", "untrained=false", f"out={out}"
    transfer(str(digits_run), settings(*given))
    next((test / "digit 1").iterdir()).unlink()
    transfer(str(digits_run), settings(*given))
    assert results(out)["datasets"]["mine"]["test"] == 8


def test_results_of_other_settings_are_not_written_over(digits_run, data, tmp_path):
    given = f"data={data}", "datasets=unsplit", "untrained=false", f"out={tmp_path}"
    transfer(str(digits_run), settings(*given))
    before = (tmp_path / "results.json").read_text()
    with pytest.raises(ValueError, match=r"is of another evaluation:\n  epochs: 2 there, 3 here\n"):
        transfer(str(digits_run), settings(*given, "epochs=3"))
    assert (tmp_path / "results.json").read_text() == before
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(ValueError, match="results.json cannot be read; remove it, or set out=FOLD"):
        transfer(str(digits_run), settings(*given))


def test_an_image_that_cannot_be_read_fails_its_data_set_or_is_left_out(
    digits_run, tmp_path, capsys
):
    folder = write_digits(tmp_path / "sets" / "unsplit", 15)
    bad = next(folder.glob("*/*"))
    bad.write_bytes(b"")
    given = f"data={tmp_path / 'sets'}", "datasets=unsplit", "untrained=false"
    with pytest.raises(ValueError, match=rf"unsplit: .*{bad.name}: it is empty"):
        transfer(str(digits_run), settings(*given, f"out={tmp_path / 'out'}"))
    # The same folder of results goes on.
    transfer(str(digits_run), settings(*given, "on_error=skip", f"out={tmp_path / 'out'}"))
    row = results(tmp_path / "out")["datasets"]["unsplit"]
    assert row["train"] + row["test"] == 44 and "it is empty" in " ".join(row["notes"])


def test_an_error_that_was_not_foreseen_does_not_lose_the_others(
    digits_run, data, tmp_path, monkeypatch
):
    def failing(encoder, sides, settings, known):
        if len(sides.test) == 24:
            raise RuntimeError("out of memory")
        return probe(encoder, sides, settings, known=known)

    monkeypatch.setattr(module, "probe", failing)
    given = f"data={data}", "datasets=split,unsplit", "untrained=false", f"out={tmp_path}"
    with pytest.raises(ValueError, match=r"split: RuntimeError\('out of memory'\)"):
        transfer(str(digits_run), settings(*given))
    assert "linear_acc1" in results(tmp_path)["datasets"]["unsplit"]


def test_settings_that_are_not_of_it():
    with pytest.raises(ValueError, match="mode='finetune': must be one of frozen"):
        settings("mode=finetune")
    with pytest.raises(ValueError, match="mixup=0.2: is of mode=finetune"):
        transfer("nowhere", settings("mixup=0.2"))


def test_its_help_says_each_setting_once():
    said = [line for line in described(TransferSettings).splitlines() if line[4] != " "]
    names = [name for line in said for name in line.strip().partition(":")[0].split(", ")]
    assert len(names) == len(set(names)) and {"data", "datasets", "epochs", "prefix"} <= set(names)
    assert "datasets" in said[0]
