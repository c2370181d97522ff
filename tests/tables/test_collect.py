"""From summaries to a table: figures, the paper's values and orderings, the files."""

import csv
import dataclasses
import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from PIL import Image

from simco_methods.tables.cells import Cell, Run, analysis_folder
from simco_methods.tables.collect import collect, judge
from simco_methods.tables.definition import read_scale, read_table
from simco_methods.tables.present import present


def cell(folder, row, column, value=None, seed=5, analysis=None, **changes):
    name = f"{row}-{column}-{seed}".replace(" ", "")
    run = Run(name, Path(folder) / name, OmegaConf.create({"max_epochs": 2}))
    if value is not None:
        run.folder.mkdir(parents=True)
        summary = {
            "last_epoch": {"val_acc1": value},
            "knn_acc1": 50.0,
            "dataset": "cifar100",
            "backbone": "resnet18",
            "epochs": 200,
            "processes": 1,
            "hardware": "a machine",
            "host": "builtin",
            "seconds": 10.0 + seed,
            "images_per_second": 800.0,
            "peak_memory_mib": 100.0,
            "versions": {"torch": "2.9"},
            "started": "2026-01-01T00:00:00",
            **changes,
        }
        (run.folder / "summary.json").write_text(json.dumps(summary))
    return Cell("a_table", row, column, seed, run, analysis)


def fill(table, folder, value):
    return [cell(folder, r, c, value(r, c)) for r in table.rows for c in table.columns]


def test_means_and_their_spread_over_seeds(tmp_path):
    table = read_table("table5", read_scale("paper"))
    cells = [
        cell(tmp_path, "SimCo", "64", 58.0, 5, knn_acc1=51.0),
        cell(tmp_path, "SimCo", "64", 60.0, 6),
        cell(tmp_path, "SimCo", "64", None, 7),
        cell(tmp_path, "MoCo v2", "1024", 50.0),
    ]
    figures = {(f.row, f.column): f for f in collect(table, cells)}
    assert len(figures) == 15
    figure = figures["SimCo", "64"]
    assert (figure.mean, figure.std) == (59.0, pytest.approx(2**0.5))
    assert (figure.paper, figure.missing, figure.average("seconds")) == (58.04, ("missing",), 15.5)
    single = figures["MoCo v2", "1024"]
    assert (single.mean, single.std, single.missing) == (50.0, None, ())
    assert figures["SimCo", "128"].mean is None

    text = present(table, cells, ["max_epochs=3"], tmp_path / "out")
    assert "59.00 ± 1.41 (2) [1 missing]" in text
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines()]
    assert ["SimCo, paper", "58.04", "58.29", "58.35", "57.08", "55.34"] in lines
    assert ["SimCo, difference", "+0.96", "", "", "", ""] in lines
    assert ["MoCo v2, difference", "", "", "", "", "+1.10"] in lines
    assert ["SimCo", "64", "2", "50.5", "15.5", "800", "100"] in lines  # what it took
    assert "paper's values: CIFAR-100, ResNet-18, 200 epochs" in text
    assert "scale: paper, with max_epochs=3" in text and "cells: 3 of 4 finished" in text
    out = tmp_path / "out"
    assert (out / "table.md").read_text() == text
    assert Image.open(out / "table.png").size[0] > 500
    with open(out / "table.csv", newline="") as file:
        rows = {(row["row"], row["column"]): row for row in csv.DictReader(file)}
    found = rows["SimCo", "64"]
    assert [float(found[key]) for key in ("mean", "paper", "n", "seconds")] == [59, 58.04, 2, 15.5]
    assert float(found["difference"]) == pytest.approx(0.96)
    with open(out / "runs.csv", newline="") as file:
        runs = list(csv.DictReader(file))
    assert [run["state"] for run in runs] == ["finished", "finished", "missing", "finished"]
    assert runs[0]["versions"] == "torch 2.9" and runs[0]["hardware"] == "a machine"
    page = (out / "report.html").read_text()
    assert "data:image/png;base64," in page and "59.00 ± 1.41 (2)" in page and "torch 2.9" in page


def test_a_difference_to_the_paper_only_at_its_scale(tmp_path):
    for scale, dataset, shown in (
        ("mini", None, True), ("smoke", None, False), ("paper", "custom", True),
    ):  # fmt: skip
        table = read_table("table5", read_scale(scale, dataset))
        cells = fill(table, tmp_path / scale, lambda row, column: 40.0)
        text = present(table, cells, [], tmp_path / scale / "out")
        assert ("SimCo, paper" in text) == shown and "difference |" not in text
        assert "SimCo, difference" not in text


def test_states(tmp_path):
    waiting = cell(tmp_path, "a", "b")
    assert waiting.state == "missing"
    waiting.run.folder.mkdir(parents=True)
    (waiting.run.folder / "metrics.csv").write_text("epoch\n0\n")
    assert (waiting.state, waiting.run.epochs_done) == ("unfinished", 1)
    waiting.run.failure.write_text("no memory\n")
    assert waiting.state == "failed"
    (waiting.run.folder / "summary.json").write_text("{}")
    assert waiting.state == "finished"
    waiting.run.failure.unlink()
    analysis = read_table("figure3", read_scale("mini")).analysis
    assert dataclasses.replace(waiting, analysis=analysis).state == "not analysed"
    with pytest.raises(ValueError, match="summary.json is no summary of a run"):
        waiting.results()


METHODS = {"MoCo v2": 0.0, "SimMoCo": 1.0, "SimCo": 2.0}


@pytest.mark.parametrize(
    "change, holds, text",
    [
        ({}, True, "holds (smallest difference 1)"),
        ({("SimCo", "512"): 1.0}, None, "9 of 10 comparisons hold, 1 equal to the last digit"),
        ({("MoCo v2", "64"): 3.0}, False, "(64: SimMoCo - MoCo v2 = -2)"),
        ({("SimMoCo", "64"): None}, None, "8 of 10 comparisons hold, 2 missing"),
        (
            {("SimMoCo", "64"): None, ("SimCo", "128"): 0.0},
            False,
            "1 of 8 comparisons (128: SimCo - SimMoCo = -1); 2 missing",
        ),
    ],
)
def test_whether_an_ordering_holds(change, holds, text, tmp_path):
    table = read_table("table5", read_scale("paper"))
    cells = fill(table, tmp_path, lambda r, c: change.get((r, c), METHODS[r]))
    (verdict,) = judge(table, collect(table, cells))
    assert verdict.holds is holds and text in verdict.text


@pytest.mark.parametrize("best", [None, "CIFAR-10", "SVHN"])
def test_best_on_all_data_sets_but_one(best, tmp_path):
    table = read_table("table8", read_scale("paper"))

    def value(row, column):  # SimCo is best, but where "best" says the opposite of the paper
        wins = (column != "SVHN") != (column == best)
        return 50.0 if row != "SimCo" else 60.0 if wins else 40.0

    (verdict,) = judge(table, collect(table, fill(table, tmp_path, value)))
    assert verdict.holds == (best is None)
    assert (best or "holds") in verdict.text


def test_orderings_along_columns_and_ends(tmp_path):
    table = read_table("figure2", read_scale("mini"))
    falls = {"256": 40.0, "1024": 39.0, "4096": 50.0, "16384": 47.0}
    cells = fill(table, tmp_path, lambda r, c: falls[c] + (1.0 if r == "vector shrinks" else 0.0))
    costs, less = judge(table, collect(table, cells))
    assert (costs.holds, less.holds) == (True, True)
    assert "7)" in costs.text and "1)" in less.text


def test_figures_of_an_analysis(tmp_path):
    table = read_table("figure3", read_scale("mini"))
    analysis = table.analysis
    assert analysis.arguments[1:] == (
        "temperatures=[0.05,0.1,0.2,0.5,1.0]", "sizes=[64,256,1024,4096]",
    )  # fmt: skip
    run = cell(tmp_path, "0.05", "64", 40.0).run
    cells = [Cell(table.name, r, c, 5, run, analysis) for r in table.rows for c in table.columns]
    assert {c.state for c in cells} == {"not analysed"}
    folder = analysis_folder(run.folder, analysis)
    cells[0].prepare()
    assert json.loads((folder / "wanted.json").read_text())["file"] == "penalty.json"
    rows = [
        {"temperature": float(r), "size": int(c), "anchor_entropy": 0.9 + 0.01 * i + 0.02 * j}
        for i, r in enumerate(table.rows)
        for j, c in enumerate(table.columns)
    ]
    (folder / "penalty.json").write_text(json.dumps({"rows": rows}))
    figures = collect(table, cells)
    assert figures[0].mean == 0.9 and figures[-1].mean == pytest.approx(1.0)
    assert all(verdict.holds for verdict in judge(table, figures))
    assert "0.900000" in present(table, cells, [], tmp_path / "out")


@pytest.mark.parametrize(
    "figures, reason",
    [
        ({"last_epoch": {"train_loss": 1.0}}, "no val_acc1"),
        ({"last_epoch": {"val_acc1": None}}, "no val_acc1"),
        ({"last_epoch": {"val_acc1": float("nan")}}, "no val_acc1"),
        ({"last_epoch": None}, "unreadable"),
    ],
)
def test_a_run_without_a_number_is_shown_and_loses_nothing(figures, reason, tmp_path):
    table = read_table("table3", read_scale("paper"))
    cells = [
        cell(tmp_path, "tau_alpha 0.1", "1.0", 3.0, **figures),
        cell(tmp_path, "tau_alpha 0.1", "0.1", 58.0),
    ]
    text = present(table, cells, [], tmp_path / "out")
    assert f"| {reason}" in text and "58.00" in text
