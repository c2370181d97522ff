import json

import pytest
from PIL import Image

from simco_methods.report import read_run, report


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
        "MoCo v2", "91.23 %", "95.00 %", "80.00 %", "12", "800",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[3].strip("|").split("|")][:3] == [
        "SimMoCo v2+", "-", "95.00 %",
    ]  # fmt: skip
    assert text.count("seed 5; a machine; torch 2.9") == 1 and "seed 6" in text
    assert (tmp_path / "out" / "table.md").read_text() == text
    assert Image.open(tmp_path / "out" / "comparison.png").size[0] > 800


def test_an_unfinished_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} holds no finished run"):
        read_run(tmp_path)
