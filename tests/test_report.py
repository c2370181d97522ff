import json
import shutil

import pytest
from omegaconf import OmegaConf
from PIL import Image

from simco_methods.methods import METHODS
from simco_methods.report import read_run, report
from simco_methods.runner import plots
from simco_methods.runner.plots import draw_curves


def write_run(folder, method, symmetric=False, settings=None, **changes):
    folder.mkdir(parents=True)
    if settings is not None:
        config = {"name": "base", "method": method, "data": {"dataset": "digits"}, **settings}
        OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
    summary = {
        "name": folder.name,
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


def cells(text):
    """Of the first Markdown table: its head and rows, cell by cell."""
    first = text.lstrip().split("\n\n")[0].splitlines()
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in first]
    return [lines[0], *lines[2:]]


def test_table_and_figure(tmp_path):
    runs = [
        write_run(tmp_path / "a", "mocov2"),
        write_run(tmp_path / "b", "simmoco", True, last_epoch={}, seed=6, epochs=1),
        write_run(tmp_path / "c", "mocov2"),
    ]
    text = report([*runs, runs[0]], tmp_path / "out")  # one of them twice
    head, *lines = cells(text)
    assert head == [
        "run", "method", "online accuracy", "kNN accuracy", "untrained kNN", "seconds", "images/s",
    ]  # fmt: skip
    assert lines[0] == ["a", "MoCo v2", "91.23 %", "95.00 %", "80.00 %", "12", "800"]
    assert lines[1][:4] == ["b", "SimMoCo v2+", "-", "95.00 %"]
    assert lines[2][:2] == ["c", "MoCo v2"] and len(lines) == 3
    # Whose settings these are.
    assert "a; c: digits, micro_resnet, 2 epochs, seed 5  \n" in text
    assert "b: digits, micro_resnet, 1 epoch, seed 6  \n" in text
    assert text.count("a machine; torch 2.9") == 1 and "all runs: a machine; torch 2.9" in text
    assert text.count("untrained kNN: ") == 1
    assert (tmp_path / "out" / "table.md").read_text() == text
    assert Image.open(tmp_path / "out" / "comparison.png").size[0] > 800


def test_runs_are_called_as_the_user_called_them(tmp_path):
    """The name of the config; of equal ones what tells them apart."""

    def labels(*runs):
        folders = [
            write_run(tmp_path / folder, "simco", name=name, settings=settings)
            for folder, name, settings in runs
        ]
        lines = cells(report(folders, tmp_path / "out"))
        shutil.rmtree(tmp_path)
        return [line[0] for line in lines[1:]]

    tau = [{"method_kwargs": {"tau_beta": value}} for value in (0.5, 1.0)]
    many = [{"max_epochs": n, "seed": n, "optimizer": {"lr": n}} for n in (1, 2)]
    assert labels(("1a2b", "mine", {}), ("3c4d", "größe | 2", {})) == ["mine", "größe \\"]
    assert labels(("1a2b", "x", tau[0]), ("3c4d", "x", tau[1]), ("5e6f", "y", {})) == [
        "x, tau_beta=0.5", "x, tau_beta=1", "y",
    ]  # fmt: skip
    assert labels(("first", "x", many[0]), ("second", "x", many[1])) == ["x, first", "x, second"]
    assert labels(("a/run", "x", {}), ("b/run", "x", {})) == [
        f"x, {tmp_path / folder / 'run'}" for folder in "ab"
    ]


def test_what_differs_is_shown(tmp_path):
    base = {"max_epochs": 2, "optimizer": {"lr": 0.1}, "data": {"dataset": "digits"}}
    other = {**base, "optimizer": {"lr": 0.2}, "output_dir": "elsewhere", "knn_eval": {"k": 20}}
    runs = [
        write_run(tmp_path / "a", "simco", settings=base),
        write_run(tmp_path / "b", "simco", settings=other),
    ]
    head, *lines = cells(report(runs, tmp_path / "out"))
    # Not the folder, and not a key that an older run lacks and that is at its default.
    assert head[:4] == ["run", "method", "optimizer.lr", "online accuracy"]
    assert [line[2] for line in lines] == ["0.1", "0.2"]
    many = {**base, "method_kwargs": {f"key{n}": n for n in range(8)}}
    runs.append(write_run(tmp_path / "c", "mocov2", settings=many))
    text = report(runs, tmp_path / "out2")
    assert cells(text)[0][2] == "online accuracy"
    beside = cells(text.split("\n\n")[1])
    assert beside[0] == ["settings that differ", "a", "b", "c"]
    assert ["optimizer.lr", "0.1", "0.2", "0.1"] in beside
    assert ["method_kwargs.key3", "-", "-", "3"] in beside


def test_data_sets_are_not_mixed(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: drawn.append(figure))
    photos = [{"data": {"dataset": "custom", "train_path": path}} for path in ("cats", "dogs")]
    runs = [
        write_run(tmp_path / "a", "simco", settings={}),
        write_run(tmp_path / "b", "mocov2", settings=photos[0], dataset="custom"),
        write_run(tmp_path / "c", "mocov2", settings={}),
        write_run(tmp_path / "d", "simco", settings=photos[1], dataset="custom"),
    ]
    text = report(runs, tmp_path / "out")
    parts = dict(part.split("\n", 1) for part in text.split("## ")[1:])
    assert list(parts) == ["digits", "custom, cats", "custom, dogs"]
    assert [[line[0] for line in cells(part)[1:]] for part in parts.values()] == [
        ["a", "c"], ["b"], ["d"],
    ]  # fmt: skip
    (figure,) = drawn
    assert [part.get_suptitle() for part in figure.subfigs] == list(parts)
    named = [[t.get_text() for t in part.legends[0].get_texts()] for part in figure.subfigs]
    assert named == [["a", "c"], ["b"], ["d"]]


def test_a_linear_evaluation_of_a_run_is_a_column(tmp_path):
    runs = [write_run(tmp_path / "a", "mocov2"), write_run(tmp_path / "b", "simco")]
    assert "linear accuracy" not in report(runs, tmp_path / "out")
    (runs[1] / "linear").mkdir()
    (runs[1] / "linear/summary.json").write_text(json.dumps({"acc1": 92.5}))
    head, without, with_it = cells(report(runs, tmp_path / "out"))
    assert head[3] == "linear accuracy"
    assert [without[3], with_it[3]] == ["-", "92.50 %"]
    # Of other images it is no accuracy of this run.
    (runs[1] / "linear/summary.json").write_text(json.dumps({"acc1": 92.5, "dataset": "svhn"}))
    assert "linear accuracy" not in report(runs, tmp_path / "out")


def test_every_method_has_a_name_for_people(tmp_path):
    for name in METHODS:
        assert read_run(write_run(tmp_path / name, name)).method != name


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
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: drawn.append(figure))
    rows = {
        run: [{"epoch": epoch, name: 1.0, "val_acc1": 50.0} for epoch in range(3)]
        for run, name in runs.items()
    }
    draw_curves(rows, tmp_path / "curves.png")
    panels = {axes.get_ylabel(): axes for axes in drawn[0].axes}
    assert panels.keys() == {*losses, "accuracy, validation images (%)"}
    assert {label: len(panels[label].lines) for label in losses} == losses
    accuracies = panels["accuracy, validation images (%)"].lines
    assert len({line.get_color() for line in accuracies}) == len(runs)
    named = [text.get_text() for legend in drawn[0].legends for text in legend.get_texts()]
    assert named == (list(runs) if len(runs) > 1 else [])
