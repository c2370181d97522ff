"""Accuracies, confusions and their files, against scikit-learn."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import confusion_matrix, recall_score, top_k_accuracy_score

from simco_methods.evaluation.accuracy import hits, scores


def drawn(classes, count=300, lacking=()):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, classes, (count,), generator=generator)
    labels[(labels[:, None] == torch.tensor(lacking, dtype=torch.int64)).any(dim=1)] = 0
    logits = torch.randn(count, classes, generator=generator)
    return logits + torch.nn.functional.one_hot(labels, classes), labels


@pytest.mark.parametrize(
    "classes, lacking", [(2, ()), (4, ()), (5, ()), (6, ()), (7, ()), (12, (3, 11))]
)
def test_as_scikit_learn_has_them(classes, lacking):
    logits, labels = drawn(classes, lacking=lacking)
    names = [f"class {i}" for i in range(classes)]
    found, every = scores(logits, labels, names), np.arange(classes)
    predicted = logits.argmax(dim=1)
    assert (found.confusion == confusion_matrix(labels, predicted, labels=every)).all()
    assert found.acc1 == pytest.approx(100 * (predicted == labels).double().mean())
    if classes > 5:
        five = top_k_accuracy_score(labels, logits, k=5, labels=every)
        assert found.acc5 == found.summary()["acc5"] == pytest.approx(100 * five)
    else:
        assert found.acc5 is None and "acc5" not in found.summary()
    recalls = 100 * recall_score(labels, predicted, average=None, labels=every, zero_division=0)
    there = np.setdiff1d(every, lacking)
    assert found.per_class[there] == pytest.approx(recalls[there])
    assert np.isnan(found.per_class[list(lacking)]).all()
    assert found.mean_per_class == pytest.approx(recalls[there].mean())


def test_many_classifiers_at_once():
    logits, labels = drawn(9)
    others = torch.stack([logits, -logits, logits.roll(1, dims=1)])
    found = 100 * hits(others, labels).double().mean(dim=1)
    alone = [scores(each, labels, [str(i) for i in range(9)]) for each in others]
    assert found.tolist() == [[pytest.approx(s.acc1), pytest.approx(s.acc5)] for s in alone]


def test_the_files(tmp_path):
    # A formula to matplotlib, a line end, bytes that are no text, another script.
    names = ["$x_", "two\nlines", "\udcff", "花", 'a,"b"', "f", "g"]
    found = scores(*drawn(7, lacking=(4,)), names)
    found.write(tmp_path, "all of them")
    with open(tmp_path / "confusion.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][1:] == [f"as {name}" for name in found.classes]
    assert [[int(n) for n in row[1:]] for row in rows[1:]] == found.confusion.tolist()
    with open(tmp_path / "per_class.csv", encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["class"] for row in table] == found.classes == [row[0] for row in rows[1:]]
    assert sum(int(row["images"]) for row in table) == 300
    assert table[4]["acc1"] == "nan" and table[4]["images"] == "0"
    share = 100 * int(table[0]["right"]) / int(table[0]["images"])
    assert float(table[0]["acc1"]) == pytest.approx(share, abs=1e-3)
    pixels = np.asarray(Image.open(tmp_path / "confusion.png").convert("L"))
    assert pixels.shape[0] > 300 and pixels.std() > 10
    assert len(list(tmp_path.iterdir())) == 3
