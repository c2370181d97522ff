"""Every table at every scale: what it is, which runs it takes, which of them are shared."""

import itertools
from pathlib import Path

import pytest
import torch
import yaml

from simco_methods.config.parse import complete, parse
from simco_methods.methods import METHODS
from simco_methods.tables import definition
from simco_methods.tables.cells import distinct
from simco_methods.tables.definition import (
    full_name,
    read_scale,
    read_table,
    scale_names,
    table_names,
)
from simco_methods.tables.plan import Settings, expand
from tests.helpers import ROOT

TABLES = table_names()
# At the paper's scale: places, and the runs that they take.
SIZES = {
    "figure2_dictionary_size": (10, 9),
    "figure3_penalty_entropy": (25, 1),
    "supervised_hardness": (2, 2),
    "table1_key_order": (3, 3),
    "table2_scalar_temperature": (10, 10),
    "table3_dual_temperature": (4, 4),
    "table4_temperature": (12, 12),
    "table5_batch_size": (15, 15),
    "table6_epochs": (9, 9),
    "table7_architectures": (12, 12),
    "table8_datasets": (25, 25),
    "table9_noncontrastive_hardness": (4, 4),
}
PAPER_TABLE_5 = {
    "MoCo v2": [52.58, 54.40, 53.28, 51.47, 48.90],
    "SimMoCo": [54.02, 54.93, 54.11, 52.45, 49.70],
    "SimCo": [58.04, 58.29, 58.35, 57.08, 55.34],
}


def table_and_cells(name, scale="paper", folder="/nowhere", overrides=(), seeds=(5,), dataset=None):
    table = read_table(name, read_scale(scale, dataset))
    settings = Settings(tuple(seeds), Path(folder), Path("out"), tuple(overrides))
    return table, expand(table, settings)


def one(cells, row, column):
    (cell,) = [cell for cell in cells if (cell.row, cell.column) == (row, column)]
    return cell


def test_there_are_the_paper_s_with_a_script_each():
    assert set(TABLES) == set(SIZES)
    for name in [*TABLES, "all"]:
        lines = (ROOT / "bash" / f"{name}.sh").read_text().splitlines()
        assert lines[-1] == f'table {name} "$@"' and len(lines) <= 8


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("scale", scale_names())
def test_every_cell_is_a_config_that_fits(name, scale):
    table, cells = table_and_cells(name, scale)
    assert [(c.row, c.column) for c in cells] == list(itertools.product(table.rows, table.columns))
    runs = [places[0].run for places in distinct(cells).values()]
    if scale == "paper":
        assert (len(cells), len(runs)) == SIZES[name]
    for run in runs:
        cfg = complete(run.cfg)
        assert cfg.output_dir == f"out/cells/{run.fingerprint}"
        if scale == "smoke":
            assert cfg.data.dataset == "digits" and parse(cfg, 1).data.num_classes == 10
        elif scale == "mini":
            assert cfg.data.dataset == "cifar10" and cfg.data.train_images_per_class == 1000
        else:
            assert cfg.data.train_images_per_class is None and cfg.max_epochs % 200 == 0
    assert all(ordering.labels and ordering.inside for ordering in table.orderings)
    assert bool(table.orderings) <= (scale != "smoke")


def test_settings_that_the_rows_and_columns_stand_for():
    table, cells = table_and_cells("table5")
    assert {row: list(values.values()) for row, values in table.paper.items()} == PAPER_TABLE_5
    for cell in cells:
        cfg = parse(complete(cell.run.cfg), 1)
        assert (cfg.data.dataset, cfg.backbone.name, cfg.max_epochs) == (
            "cifar100",
            "resnet18",
            200,
        )
        assert cfg.optimizer.batch_size == int(cell.column)
        assert cfg.optimizer.lr == pytest.approx(0.03 * int(cell.column) / 256)
    assert [c.run.cfg.max_epochs for c in table_and_cells("table6")[1]] == [200, 400, 800] * 3
    for name in ("table2", "table3", "table4"):
        for cell in table_and_cells(name)[1]:
            kwargs = cell.run.cfg.method_kwargs
            if name == "table2":
                assert (kwargs.vector.tau, kwargs.scalar.tau) == (0.1, float(cell.column))
                current = cell.row == "current keys"
                for part in (kwargs.vector, kwargs.scalar):
                    assert part.negatives == ("batch" if current else "queue")
                    assert part.size == (None if current else 256) and part.order == "recent"
            elif name == "table3":
                assert kwargs.tau_alpha == float(cell.row.split()[1])
                assert kwargs.tau_beta == float(cell.column)
            elif cell.row == "MoCo v2":
                assert kwargs.tau == float(cell.column)
            else:
                assert kwargs.tau_alpha == float(cell.column)
                assert kwargs.tau_beta == 10 * kwargs.tau_alpha  # the authors' dt_m
    for cell in table_and_cells("table1")[1]:
        for part in (cell.run.cfg.method_kwargs.vector, cell.run.cfg.method_kwargs.scalar):
            assert (part.size, part.order) == (256, cell.column)
    for cell in table_and_cells("figure2")[1]:
        kwargs = cell.run.cfg.method_kwargs
        small, whole = kwargs.scalar, kwargs.vector
        if cell.row == "vector shrinks":
            small, whole = whole, small
        assert whole.size is None
        assert small.size == (None if cell.column == "65536" else int(cell.column))
    assert {c.run.cfg.data.dataset for c in table_and_cells("table8")[1]} == {
        "cifar10", "cifar100", "svhn", "stl10", "imagenet100",
    }  # fmt: skip
    assert [c.run.cfg.method_kwargs.weighted for c in table_and_cells("table9")[1]] == [
        False, True, False, True,
    ]  # fmt: skip
    assert [c.run.cfg.method_kwargs.equal_weight for c in table_and_cells("supervised")[1]] == [
        False, True,
    ]  # fmt: skip


def test_the_paper_s_architectures_build_at_their_image_sizes():
    for scale in ("paper", "smoke"):
        _, cells = table_and_cells("table7", scale)
        for cell in cells[-4:]:
            cfg = parse(complete(cell.run.cfg), 1)
            assert cfg.method == "simco"
            model = METHODS["simco"](cfg).eval()
            size = cfg.augmentations[0].crop_size
            with torch.no_grad():
                assert model.backbone(torch.zeros(1, 3, size, size)).shape == (
                    1,
                    model.features_dim,
                )


def test_a_cell_is_its_configuration(tmp_path):
    def name(*overrides, data=tmp_path, scale="mini"):
        cells = table_and_cells("table3", scale, data, overrides)[1]
        return one(cells, "tau_alpha 0.1", "1.0").run.fingerprint

    assert name() == name("data.num_workers=7", "analysis.enabled=true")
    others = [name("max_epochs=21"), name("method_kwargs.proj_output_dim=64")]
    others += [name(data=tmp_path / "other"), name(scale="paper")]
    assert len({name(), *others}) == 5
    # However the folder is written.
    assert name(data=tmp_path / "a" / "..") == name()


def test_tables_share_runs():
    def runs(name, scale):
        return set(distinct(table_and_cells(name, scale)[1]))

    for scale in ("paper", "mini"):
        assert runs("figure3", scale) < runs("figure2", scale)
        assert len(runs("table1", scale) & runs("table2", scale)) == 1  # recent, tau_beta 0.1
        at_256 = runs("table5", scale) & runs("table4", scale)
        assert len(at_256) == 3 and len(runs("table3", scale) & at_256) == 1
        assert len(runs("table6", scale) & at_256) == 3
    assert len(runs("table5", "paper") & runs("table8", "paper")) == 3


def test_a_batch_is_shared_by_the_devices():
    whole = {c.column: c.run for c in table_and_cells("table5")[1] if c.row == "SimCo"}
    two = table_and_cells("table5", overrides=["devices=2", "accelerator=cpu"])[1]
    for cell in two:
        assert cell.run.cfg.optimizer.batch_size * 2 == int(cell.column)
    assert whole["64"].cfg.optimizer.batch_size == 64
    with pytest.raises(ValueError, match="MoCo v2, 64: a batch of 64 cannot be shared by 3 proc"):
        table_and_cells("table5", overrides=["devices=3", "accelerator=cpu"])


def test_data_sets_of_their_folders(tmp_path):
    _, cells = table_and_cells("table8", folder=tmp_path)
    paths = {c.column: c.run.cfg.data.train_path for c in cells}
    assert paths["CIFAR-10"] == paths["SVHN"] == str(tmp_path)
    assert paths["ImageNet-100"] == str(tmp_path / "imagenet100" / "train")
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
    _, cells = table_and_cells("figure2", "mini", tmp_path, dataset="custom")
    data = cells[0].run.cfg.data
    assert data.train_images_per_class is None  # as many as there are
    assert (data.dataset, data.val_path) == ("custom", str(tmp_path / "test"))
    assert cells[0].run.cfg.augmentations[0].crop_size == 32
    table, _ = table_and_cells("table8", "mini", tmp_path, dataset="custom")
    assert list(table.columns) == ["custom"]
    with pytest.raises(ValueError, match="the columns are data sets, DATASET=custom"):
        table_and_cells("table8", "paper", tmp_path, dataset="custom")
    at_full_size = table_and_cells("table3", "paper", tmp_path, dataset="custom")[1]
    assert at_full_size[0].run.cfg.augmentations[0].crop_size == 224


def test_short_and_wrong_names():
    assert full_name("table5") == "table5_batch_size"
    with pytest.raises(ValueError, match=r"tabel5 is none of the tables \(did you mean table5\?\)"):
        full_name("tabel5")
    with pytest.raises(ValueError, match="table is none of the tables.*table1_key_order"):
        full_name("table")
    with pytest.raises(ValueError, match="scale 'papper' is none of mini, paper, smoke"):
        read_scale("papper")


@pytest.mark.parametrize(
    "name, override, message",
    [
        ("table5", "max_epoch=3", "(?s)table5_batch_size, MoCo v2, 64: .*max_epoch is no key"),
        ("table5", "optimizer=3", "table5_batch_size, MoCo v2, 64: "),
        # Otherwise places that differ would be one run.
        ("table5", "optimizer.batch_size=64", "optimizer.batch_size is set by the table"),
        ("table6", "++max_epochs=3", "max_epochs is set by the table"),
        ("table6", "seed=7", r"seed is set by SEEDS \(--seeds\)"),
        ("table6", "output_dir=here", r"output_dir is set by OUT \(--out\)"),
        ("table6", "data.val_path=there", r"data.val_path is set by DATA \(--data\)"),
        ("table6", "devices=auto", "devices=auto: a table needs their number"),
    ],
)
def test_overrides_that_do_not_fit(name, override, message):
    with pytest.raises(ValueError, match=message):
        table_and_cells(name, overrides=[override, "accelerator=gpu"])


def test_a_folder_with_an_odd_name(tmp_path):
    folder = tmp_path / "it's a \\ folder #1, {of: data}=x"
    (cell, *_) = table_and_cells("table3", "mini", folder)[1]
    assert cell.run.cfg.data.train_path == str(folder)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"colums": {}}, "colums is none of title"),
        ({"at": {"mnii": {}}}, "mnii is none of mini, paper, smoke"),
        ({"rows": {"a": {"sets": ["x=1"]}}}, "sets is none of config, dataset, set"),
        ({"orderings": [{"says": "so", "columns": ["2048"]}]}, "ordering 'so': 2048 is no column"),
    ],
)
def test_a_table_that_does_not_fit_together(change, message, tmp_path, monkeypatch):
    (tmp_path / "table0.yaml").write_text(
        yaml.safe_dump({"title": "t", "rows": {"a": {}}, "columns": {"b": {}}, **change})
    )
    monkeypatch.setattr(definition, "_FOLDER", tmp_path)
    monkeypatch.setattr(definition, "scale_names", lambda: ["mini", "paper", "smoke"])
    scale = definition.Scale("paper", None, False, (), {}, True, 1)
    with pytest.raises(ValueError, match=message):
        read_table("table0", scale)
