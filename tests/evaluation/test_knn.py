"""The grid of simco-knn against recorded figures and scikit-learn; its images, files and errors."""

import csv
import json
import os

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from simco_methods.encoder import Encoder, load_encoder
from simco_methods.evaluation.bank import bank_and_queries
from simco_methods.evaluation.grid import Cell, cells_of, measure, nearest_to_standard
from simco_methods.evaluation.knn import knn
from simco_methods.evaluation.knn_settings import KNNSettings
from simco_methods.host.knn import knn_accuracy
from simco_methods.settings import parse_settings
from tests import FIGURES
from tests.evaluation.conftest import write_digits
from tests.host.test_knn import Memory, labelled, reference

KNN = json.loads((FIGURES / "knn.json").read_text())


def settings(*arguments):
    return parse_settings("simco-knn", KNNSettings, [*arguments, "num_workers=0"])


def read(folder):
    return json.loads((folder / "summary.json").read_text())


def classifier(cell):
    """scikit-learn's of the same weights."""
    if cell.distance == "cosine":
        weights = lambda distance: np.exp((1 - distance) / cell.temperature)  # noqa: E731
    else:
        weights = lambda distance: 1 / (distance + 1e-5)  # noqa: E731
    return KNeighborsClassifier(cell.k, weights=weights, algorithm="brute", metric=cell.distance)


# ---- the numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [None, 0.02])
def test_the_recorded_figures_from_one_search(memory):
    arrays = {k: torch.from_numpy(v) for k, v in np.load(FIGURES / "knn_inputs.npz").items()}
    bank, queries = (
        (arrays[f"{side}_features"], arrays[f"{side}_targets"]) for side in ("train", "test")
    )
    cells = cells_of(["euclidean", "cosine"], [KNN["temperature"]], [20, 1, 5])
    classes = [str(number) for number in range(7)]
    grid = measure(bank, queries, cells, classes, memory_mib=memory)
    found = {f"{cell.distance},k={cell.k}": accs for cell, accs in grid.accuracies.items()}
    assert len(found) == len(KNN["results"])
    arrays = *bank, *queries
    for name, accs in found.items():
        expected = list(KNN["results"][name].values())
        if name.endswith("k=5"):  # solo-learn's top-5 has classes without a vote
            expected[1] = reference(*arrays, k=5, distance=name.split(",")[0], classes=7)[1]
        assert accs == pytest.approx(expected), name


@pytest.mark.parametrize("memory", [None, 0.01])
def test_as_scikit_learn_does(memory):
    bank, test = labelled(400, 6, 9, 0), labelled(70, 6, 9, 1)
    cells = cells_of(["cosine", "euclidean"], [0.5, 0.05], [1, 4, 33, 400])
    assert len(cells) == 12
    grid = measure(bank, test, cells, list("abcdefghi"), memory_mib=memory)
    for cell in cells:
        other = classifier(cell).fit(*(part.numpy() for part in bank))
        likely = other.predict_proba(test[0].numpy())
        top = np.argsort(-likely, axis=1, kind="stable")[:, :5]
        right = (top == test[1].numpy()[:, None]) & (np.take_along_axis(likely, top, 1) > 0)
        expected = [100 * right[:, :1].mean(), 100 * right.any(axis=1).mean()]
        assert grid.accuracies[cell] == pytest.approx(expected), cell


def test_confusions_of_the_standard_cell_as_scikit_learn_does():
    bank, test = labelled(300, 6, 4, 0), labelled(60, 6, 4, 1)
    cells = cells_of(["euclidean", "cosine"], [0.5, 0.1], [3, 17])
    grid = measure(bank, test, cells, list("abcd"), memory_mib=0.02)
    assert grid.standard == Cell("cosine", 17, 0.1)
    predicted = classifier(grid.standard).fit(*bank).predict(test[0].numpy())
    expected = np.zeros((4, 4), dtype=int)
    np.add.at(expected, (test[1].numpy(), predicted), 1)
    assert np.array_equal(grid.scores.confusion, expected)


def test_a_cell_alone_is_what_it_is_among_others():
    bank, test = labelled(500, 8, 7, 0), labelled(90, 8, 7, 1)
    cells = cells_of(["cosine", "euclidean"], [0.07, 1.0], [2, 20, 150])
    for cell, found in measure(bank, test, cells, list("abcdefg")).accuracies.items():
        alone = {"k": cell.k, "distance": cell.distance, "num_classes": 7}
        alone |= {"temperature": cell.temperature} if cell.temperature else {}
        assert knn_accuracy(*bank, *test, **alone) == pytest.approx(found)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("memory", [None, 0.002])
def test_an_image_is_never_its_own_neighbour(distance, memory):
    features, targets = labelled(60, 5, 4, 0)
    features = torch.cat([features, features[:20]])  # twins, of which one is at distance 0
    targets = torch.cat([targets, (targets[:20] + 1) % 4])
    asked = torch.arange(0, 80, 3)
    own = torch.where(asked % 2 == 0, asked, -1)
    cells = cells_of([distance], [0.1], [1, 7, 79])
    queries = features[asked], targets[asked]
    grid = measure((features, targets), queries, cells, list("abcd"), own.numpy(), memory)
    for cell, (top1, _) in grid.accuracies.items():
        expected = 0
        for row, itself in zip(asked.tolist(), own.tolist(), strict=True):
            others = torch.arange(80) != itself
            fitted = classifier(cell).fit(features[others], targets[others])
            expected += int(fitted.predict(features[row : row + 1])[0] == targets[row])
        # Of twins that vote alike either may come first.
        assert top1 == pytest.approx(100 * expected / len(asked), abs=0 if cell.k > 1 else 4), cell


def test_low_temperatures_do_not_overflow():
    bank, test = labelled(300, 6, 5, 0), labelled(40, 6, 5, 1)
    cells = cells_of(["cosine"], [1e-4], [1, 50])
    grid = measure(bank, test, cells, list("abcde"))
    assert grid.accuracies[cells[1]][0] == grid.accuracies[cells[0]][0]


def test_a_grid_stays_within_the_memory():
    bank, test = labelled(9000, 64, 100, 0), labelled(300, 64, 100, 1)
    cells = cells_of(["cosine", "euclidean"], [0.07, 0.5], [1, 200])
    with Memory() as mode:
        measure(bank, test, cells, [str(n) for n in range(100)], np.arange(300), memory_mib=2)
    assert 2**18 < mode.largest and mode.most < 2**21


def test_the_standard_is_the_nearest_to_it():
    cells = cells_of(["euclidean", "cosine"], [0.05, 1.0], [1, 15, 100])
    assert nearest_to_standard(cells) == Cell("cosine", 15, 0.05)
    assert nearest_to_standard(cells[:3]) == Cell("euclidean", 15, None)


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(digits_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("knn") / "out"
    given = "distance=cosine,euclidean", "temperature=[0.07,0.5]", "k=[1,20,200]", f"out={folder}"
    assert knn(str(digits_run), settings(*given)) == folder
    return folder


def test_what_it_writes(digits_run, result):
    assert {path.name for path in result.iterdir()} == {
        *("summary.json", "results.csv", "knn.png"),
        *("per_class.csv", "confusion.csv", "confusion.png"),
    }
    summary = read(result)
    with open(result / "results.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(summary["results"]) == 9
    for line, row in zip(rows, summary["results"], strict=True):
        assert float(line["acc1"]) == row["acc1"] and int(line["k"]) == row["k"]
    marked = [row for row in summary["results"] if row["standard"]]
    assert [(m["distance"], m["k"], m["temperature"]) for m in marked] == [("cosine", 20, 0.07)]
    with open(result / "per_class.csv", encoding="utf-8") as file:
        right = sum(int(row["right"]) for row in csv.DictReader(file))
    assert (
        marked[0]["acc1"]
        == summary["standard"]["acc1"]
        == pytest.approx(100 * right / 360, abs=1e-4)
    )
    assert summary["settings"]["k"] == [1, 20, 200]


def test_it_measures_the_encoder_on_its_images(digits_run, result):
    encoder = load_encoder(digits_run)
    images = bank_and_queries(settings(), encoder, "train", "test")
    assert (len(images.bank), len(images.queries), images.own) == (200, 360, None)
    sets = [
        (torch.from_numpy(encoder.transform(side.images)), torch.from_numpy(side.labels))
        for side in (images.bank, images.queries)
    ]
    expected = knn_accuracy(*sets[0], *sets[1], k=20)
    standard = read(result)["standard"]
    assert (standard["acc1"], standard["acc5"]) == pytest.approx(expected, abs=1e-4)


def test_a_folder_of_before_is_written_anew(digits_run, tmp_path, capsys):
    for name in ("summary.json", "results.csv", "knn.png"):
        (tmp_path / name).write_text("of before")
    knn(str(digits_run), settings("queries=train", f"out={tmp_path}"))
    said = capsys.readouterr().out
    assert "note: 200 of 200 queries are images of the bank; none is its own neighbour" in said
    # As many as the bank has beside the query: 200 of the defaults is left out.
    assert [row["k"] for row in read(tmp_path)["results"]] == [1, 5, 10, 20, 50, 100]
    assert not list(tmp_path.glob(".*"))


def test_two_folders(digits_run, tmp_path):
    bank = write_digits(tmp_path / "bank", 8)
    queries = write_digits(tmp_path / "queries", 4, first=6, classes=[0, 2])
    (queries / "digit 2" / "also.png").symlink_to(sorted((bank / "digit 0").iterdir())[0])
    found = bank_and_queries(settings(), load_encoder(digits_run), str(bank), str(queries))
    # Two of the four of each class are in both, as copies; the link is the same file.
    assert found.own.tolist() == [-1] * 8 + [0]
    assert found.classes == ["digit 0", "digit 1", "digit 2"] and found.most == 23
    assert found.queries.labels.tolist() == [0] * 4 + [2] * 5
    assert found.notes == [
        "the test images lack 1 class(es): digit 1",
        "top-5 accuracies are left out: with 3 classes they are always 100 %",
        "1 of 9 queries are images of the bank; none is its own neighbour",
    ]
    given = f"bank={bank}", f"queries={queries}", f"out={tmp_path / 'out'}"
    summary = read(knn(str(digits_run), settings(*given)))
    assert [row["k"] for row in summary["results"]] == [1, 5, 10, 20]
    assert summary["classes"] == 3 and summary["standard"]["per_class"]["digit 1"] is None


def test_a_folder_beside_a_side_of_the_data_set(digits_run, tmp_path):
    train = write_digits(tmp_path / "train", 5)
    test = write_digits(tmp_path / "test", 2, first=5)
    more = write_digits(tmp_path / "more", 3, first=7, classes=[1])
    data = "data.dataset=custom", f"data.train_path={train}", f"data.val_path={test}"
    encoder = load_encoder(digits_run)
    found = bank_and_queries(settings(*data), encoder, "val", str(more))
    assert (len(found.bank), found.queries.labels.tolist()) == (6, [1, 1, 1])
    assert found.notes == [
        f"the images in {more} lack 2 class(es): digit 0, digit 2",
        "top-5 accuracies are left out: with 3 classes they are always 100 %",
    ]
    same = bank_and_queries(settings(*data), encoder, str(train), "train")
    assert same.own.tolist() == list(range(15))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["k=[5,201]"], r"k=201: more neighbours than the bank has images \(200\)"),
        (["k=200", "queries=train"], r"k=200: more .* images beside the query itself \(199\)"),
        (["bank=nowhere"], "there is no folder nowhere"),
        (
            ["bank=FLAT", "queries=FLAT"],
            "no class folder with images in FLAT: an evaluation needs a folder for each class$",
        ),
        (
            ["bank=SPLIT", "queries=THREE"],
            r"^SPLIT holds the parts of a split \(train, val\); name one of them$",
        ),
        (["queries=SPLIT"], r"^SPLIT holds the parts .*; name one of them$"),
        (["bank=ONE", "queries=ONE"], r"all labelled images are of one class \(digit 1\)"),
        (["bank=ONE", "queries=THREE"], "THREE has the class folders digit 0, digit 2, which"),
        (["queries=THREE"], "THREE has the class folders digit 0, digit 1, digit 2, which the"),
        (["bank=ONE", "queries=ONE", "test_share=0.5"], "test_share: of a data set, and bank=ONE"),
        (["bank=test", "fraction=0.5"], "fraction=0.5: of the training images, and bank=test and"),
        (["out=FILE"], "FILE is no folder; set out=FOLDER"),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_written(
    arguments, message, digits_run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path / "THREE", 2)
    write_digits(tmp_path / "ONE", 2, classes=[1])
    for part in ("train", "val"):
        write_digits(tmp_path / "SPLIT" / part, 1)
    os.rename(write_digits(tmp_path / "x", 2, classes=[3]) / "digit 3", "FLAT")
    (tmp_path / "FILE").write_text("")
    before = set(tmp_path.rglob("*"))
    given = arguments if "out=FILE" in arguments else [*arguments, "out=out"]
    with pytest.raises((ValueError, OSError), match=message):
        knn(str(digits_run), settings(*given))
    assert set(tmp_path.rglob("*")) == before


def test_an_accuracy_is_of_finite_features(digits_run, tmp_path, monkeypatch):
    forward = Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda self, images: forward(self, images) / 0)
    with pytest.raises(ValueError, match="features of some images are not finite"):
        knn(str(digits_run), settings(f"out={tmp_path / 'out'}"))
    assert not (tmp_path / "out").exists()


def test_a_temperature_is_of_cosine_weights_alone():
    assert settings().temperature == settings("distance=cosine,euclidean").temperature == [0.07]
    assert settings("distance=euclidean").temperature is None
    assert settings("distance=euclidean,cosine", "temperature=0.1,0.2").temperature == [0.1, 0.2]
    with pytest.raises(ValueError, match="^temperature=0.1,0.2: euclidean .* distance=cosine$"):
        settings("distance=euclidean", "temperature=0.1,0.2")


@pytest.mark.parametrize(
    "argument", ["k=0", "k=[]", "temperature=0", "distance=l1", "memory_mib=0"]
)
def test_settings_are_checked(argument):
    key = argument.split("=")[0]
    with pytest.raises(ValueError, match=f"^{key}=.*: must be"):
        settings(argument)
