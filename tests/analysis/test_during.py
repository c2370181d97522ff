"""The analyses while a method trains: what they find, and that the training stays as it is."""

import csv
import json

import pytest
import torch
from omegaconf import OmegaConf
from torch.utils.data import DataLoader

from simco_methods.analysis.during import DuringTraining
from simco_methods.analysis.history import _KINDS
from simco_methods.losses import anchor_hardness
from simco_methods.runner.train import prepare, pretrain
from tests.helpers import VARIANTS, Losses, batch, build, quiet_trainer
from tests.runner.test_pretrain import quick, weights

EMBEDDING = [variant for variant in VARIANTS if variant[0] != "supervised_hardness"]
BATCHES = 6


def settings(**changes):
    given = {"every_n_steps": 2, "keys": 64, "sizes": [8, 32], "temperatures": [0.1, 1.0]}
    return OmegaConf.create({"name": "run", "analysis": {"enabled": True, **given, **changes}})


def train(name, symmetric, callbacks, max_epochs=2, checkpoint=None, folder=None):
    model = build(name, symmetric, max_epochs=2, scheduler__warmup_epochs=1)
    losses = Losses()
    trainer = quiet_trainer(max_epochs=max_epochs, callbacks=[losses, *callbacks])
    batches = [batch(16, seed=step) for step in range(BATCHES)]
    trainer.fit(model, DataLoader(batches, batch_size=None), ckpt_path=checkpoint)
    if folder:
        trainer.save_checkpoint(folder / "at.ckpt")
    return model, losses.seen


@pytest.mark.parametrize("name, symmetric", EMBEDDING)
def test_the_training_is_bitwise_the_same(name, symmetric, monkeypatch):
    monkeypatch.setattr(DuringTraining, "_write", lambda *_, **__: None)
    measured = DuringTraining(settings())
    model, losses = train(name, symmetric, [measured])
    plain, expected = train(name, symmetric, [])
    assert losses == expected
    state = plain.state_dict()
    assert not [k for k, v in model.state_dict().items() if not torch.equal(v, state[k])]
    assert all(part.training for part in model.modules())
    steps = {row["step"] for row in measured.rows["geometry"]}
    assert steps == {2, 4, 6, 8, 10, 12}
    assert {row["size"] for row in measured.rows["penalty"]} == {8, 32}
    assert {row["age"] for row in measured.rows["consistency"]} == {2, 4, 6, 8, 10}


def test_leaves_tables_curves_and_a_page(tmp_path):
    measured = DuringTraining(settings(), tmp_path)
    train("mocov2", False, [measured])
    for kind in _KINDS:
        content = json.loads((tmp_path / f"{kind}.json").read_text())
        assert len(content["rows"]) == len(measured.rows[kind]) > 0
        assert (tmp_path / f"{kind}.png").stat().st_size > 5000
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == len(_KINDS)


def test_measures_the_step_s_own_embeddings(tmp_path):
    """W of the rows against the method's own queue, which holds the same keys."""
    measured = DuringTraining(settings(sizes=[64], temperatures=[0.5]), tmp_path)
    seen = []
    model = build("mocov2", method_kwargs__queue_size=64)
    contrast = model.contrast

    def spy(query, key, side):
        queue = model.queues[0]
        if queue.filled.all():
            w = anchor_hardness(query.detach(), key, queue.keys, 0.5)
            seen.append((int(queue.step), w.mean().item(), w.std().item()))
        return contrast(query, key, side)

    model.contrast = spy
    trainer = quiet_trainer(callbacks=[measured])
    trainer.fit(model, DataLoader([batch(16, seed=s) for s in range(8)], batch_size=None))
    rows = {row["step"]: row for row in measured.rows["penalty"]}
    assert sorted(rows) == [6, 8] and len(seen) == 4
    for done, mean, std in seen:
        if done + 1 in rows:
            assert rows[done + 1]["hardness"] == pytest.approx(mean, rel=1e-5)
            assert rows[done + 1]["hardness_std"] == pytest.approx(std, rel=1e-3)


@pytest.mark.parametrize("name", ["mocov2", "simco"])
def test_a_resumed_run_goes_on_measuring(name, tmp_path, monkeypatch):
    monkeypatch.setattr(DuringTraining, "_write", lambda *_, **__: None)
    straight, first, then = (DuringTraining(settings()) for _ in range(3))
    train(name, False, [straight])
    train(name, False, [first], max_epochs=1, folder=tmp_path)
    torch.load(tmp_path / "at.ckpt", weights_only=True)
    train(name, False, [then], checkpoint=tmp_path / "at.ckpt")
    assert then.rows["geometry"][:3] == first.rows["geometry"]
    for kind, rows in straight.rows.items():
        keys = ("step", "temperature", "size", "age", "order")
        assert [[row.get(key) for key in keys] for row in rows] == [
            [row.get(key) for key in keys] for row in then.rows[kind]
        ]


def test_in_the_runner(tmp_path, capsys):
    analysis = {"enabled": True, "every_n_steps": 2, "keys": 64}
    folder = pretrain(quick("digits/mocov2", tmp_path / "on", analysis=analysis))
    assert f"analyses during training: {folder / 'analysis' / 'report.html'}" in (
        capsys.readouterr().out
    )
    with open(folder / "analysis" / "penalty.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["step"] for row in rows} == {"6"}  # before, there were not 64 keys
    plain = pretrain(quick("digits/mocov2", tmp_path / "off"))
    assert not (plain / "analysis").exists()
    expected = weights(plain)
    assert not [k for k, v in weights(folder).items() if not torch.equal(v, expected[k])]
    # It is the same run, to be taken for finished.
    again = quick("digits/mocov2", tmp_path / "on")
    assert pretrain(again) == folder
    assert "is finished: nothing is trained" in capsys.readouterr().out


def test_one_number_is_a_list_of_one():
    measured = DuringTraining(settings(sizes=32, temperatures=0.5))
    assert (measured.sizes, measured.temperatures) == ([32], [0.5])


def test_a_run_too_short_to_be_measured_says_so():
    with pytest.warns(UserWarning, match="the run had 12 batches, analysis.every_n_steps=50"):
        train("simco", False, [DuringTraining(settings(every_n_steps=50))])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"every_n_steps": 0}, "analysis.every_n_steps=0: must be a whole number of at least 1"),
        ({"temperatures": [0]}, "analysis.temperatures=.*each a finite number above 0"),
        ({"sizes": [8, 65]}, "analysis.sizes has 65, above analysis.keys=64"),
        ({"keys": 2}, "analysis.keys=2: must be a whole number of at least 64"),
        ({"key": 2}, "analysis.key is unknown; there are enabled"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        DuringTraining(settings(**changes))


def test_a_method_without_a_projector_is_named(tmp_path):
    cfg = quick("digits/supervised_hardness", tmp_path / "run", analysis={"enabled": True})
    with pytest.raises(ValueError, match="which supervised_hardness has not"):
        prepare(cfg)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="which supervised_hardness has not"):
        train("supervised_hardness", False, [DuringTraining(settings())])
