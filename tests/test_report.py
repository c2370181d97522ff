import json

import pytest
from matplotlib.figure import Figure
from PIL import Image

from simco_methods.methods import METHODS
from simco_methods.report import read_run, report
from simco_methods.runner.plots import draw_curves


def write_run(folder, method, symmetric=False, **changes):
    folder.mkdir()
    summary = {
        "method": method,
        "symmetric": symmetric,
        "dataset": "digits",
        "backbone": "micro_resnet",
        "seed": 5,
        "epochs": 2,
        "last_epoch": {"val_acc1": 91.234},
        "knn_acc1": 95.0,
        "untrained_knn_acc1": 80.0,
        "seconds": 12.4,
        "images_per_second": 800.0,
        "hardware": "a machine",
        "versions": {"torch": "2.9"},
        **changes,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "metrics.csv").write_text(
        "epoch,train_nce_loss,val_acc1,val_knn_acc1\n0,4.1,50.0,60.0\n1,3.9,,\n"
    )
    return folder


def test_table_and_figure(tmp_path):
    runs = [
        write_run(tmp_path / "a", "mocov2"),
        write_run(tmp_path / "b", "simmoco", True, last_epoch={}, seed=6),
        write_run(tmp_path / "c", "mocov2"),
    ]
    text = report(runs, tmp_path / "out")
    lines = text.splitlines()
    assert lines[0].startswith("| method")
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == [
        "MoCo v2, a", "91.23 %", "95.00 %", "80.00 %", "12", "800",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[3].strip("|").split("|")][:3] == [
        "SimMoCo v2+", "-", "95.00 %",
    ]  # fmt: skip
    assert text.count("seed 5; a machine; torch 2.9") == 1 and "seed 6" in text
    assert (tmp_path / "out" / "table.md").read_text() == text
    assert Image.open(tmp_path / "out" / "comparison.png").size[0] > 800


def test_a_linear_evaluation_of_a_run_is_a_column(tmp_path):
    runs = [write_run(tmp_path / "a", "mocov2"), write_run(tmp_path / "b", "simco")]
    assert "offline" not in report(runs, tmp_path / "out")
    (runs[1] / "linear").mkdir()
    (runs[1] / "linear/summary.json").write_text(json.dumps({"acc1": 92.5}))
    head, _, without, with_it = report(runs, tmp_path / "out").splitlines()[:4]
    assert head.split("|")[3].strip() == "offline accuracy"
    assert [line.split("|")[3].strip() for line in (without, with_it)] == ["-", "92.50 %"]


def test_every_method_has_a_name_for_people(tmp_path):
    for name in METHODS:
        summary, _ = read_run(write_run(tmp_path / name, name))
        assert summary["label"] != name


def test_an_unfinished_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} holds no finished run"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    "runs, losses",
    [
        ({"A": "train_nce_loss", "B": "train_neg_cos_sim"}, {"contrastive loss (nats)": 1}),
        ({"A": "train_neg_cos_sim"}, {"loss, each method's own": 1}),
        ({"A": "train_supervised_loss"}, {"cross entropy (nats)": 1}),
        ({f"run {i}": "train_nce_loss" for i in range(12)}, {"contrastive loss (nats)": 12}),
        ({"A": "no_such_loss"}, {}),
    ],
    ids=["contrastive beside another", "another", "supervised", "many", "unknown"],
)
def test_what_is_drawn(runs, losses, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    rows = {
        run: [{"epoch": epoch, name: 1.0, "val_acc1": 50.0} for epoch in range(3)]
        for run, name in runs.items()
    }
    draw_curves(rows, tmp_path / "curves.png")
    panels = {axes.get_ylabel(): axes for axes in drawn[0].axes}
    assert panels.keys() == {*losses, "validation accuracy (%)"}
    assert {label: len(panels[label].lines) for label in losses} == losses
    accuracies = panels["validation accuracy (%)"].lines
    assert len({line.get_color() for line in accuracies}) == len(runs)
    named = [text.get_text() for legend in drawn[0].legends for text in legend.get_texts()]
    assert named == (list(runs) if len(runs) > 1 else [])
