"""The runner as a library: its folder, resuming, refusing, and runs without labels."""

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from simco_methods import compiling
from simco_methods.arguments import literal
from simco_methods.config.parse import complete, parse
from simco_methods.host import HOST
from simco_methods.methods import METHODS
from simco_methods.report import report
from simco_methods.runner import train
from simco_methods.runner.evaluate import offline_knn
from simco_methods.runner.recorder import LOSSES
from simco_methods.runner.train import pretrain
from tests.helpers import BASELINES, LEAVES, compose_config

QUICK = {
    "max_epochs": 2,
    "accelerator": "cpu",
    "limit_train_batches": 3,
    "limit_val_batches": 2,
    "log_every_n_steps": 1,
    "num_sanity_val_steps": 0,
    "data.num_workers": 0,
    "optimizer.batch_size": 16,
    "backbone": {"name": "micro_resnet", "kwargs": {"channels": [8, 8, 16, 16]}},
    "knn_eval.offline": False,
}


OURS = [leaf for leaf in LEAVES if leaf.startswith("digits/")]
THEIRS = [
    pytest.param(
        leaf,
        marks=[
            pytest.mark.solo_learn,
            pytest.mark.skipif(HOST != "solo-learn", reason="of the solo-learn host"),
        ],
    )
    for leaf in BASELINES
    if leaf.startswith("digits/")
]


def quick(leaf, folder, **changes):
    cfg = compose_config(leaf)
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    for key, value in {**QUICK, "output_dir": folder and str(folder), **changes}.items():
        OmegaConf.update(cfg, key, value, force_add=True, merge=False)
    return cfg


def rows(folder):
    with open(folder / "metrics.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def weights(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


@pytest.mark.parametrize("name", ["simco", "simmoco", "simmoco_v2plus", "mocov2", "mocov2plus"])
def test_a_run_leaves_everything_behind(name, tmp_path, capsys):
    cfg = quick(f"digits/{name}", tmp_path / "run", knn_eval__offline=True, max_epochs=2)
    folder = pretrain(cfg)
    said = capsys.readouterr().out
    assert "effective batch 16 (16 x 1 process(es) x 1 accumulated), learning rate" in said
    assert f"{1024 if 'moco' in name and 'sim' not in name else 15} negatives per anchor" in said

    table = rows(folder)
    assert [row["epoch"] for row in table] == ["0", "1"] and table[-1]["step"] == "6"
    summary = json.loads((folder / "summary.json").read_text())
    for key in ("train_nce_loss", "train_acc1", "val_acc1", "val_acc5", "val_knn_acc1"):
        assert summary["last_epoch"][key] == float(table[-1][key])
    for key in ("knn_acc1", "untrained_knn_acc1"):
        assert 0 < summary[key] <= 100
    assert summary["seed"] == 5 and summary["epochs"] == 2 and summary["images_per_second"] > 0
    assert summary["versions"]["torch"] and summary["hardware"] and summary["seconds"] > 0
    assert Image.open(folder / "curves.png").size[0] > 400
    assert list((folder / "tensorboard").glob("events*"))
    assert OmegaConf.load(folder / "config.yaml").method == cfg.method
    settings = OmegaConf.load(folder / "tensorboard" / "hparams.yaml")
    assert settings == OmegaConf.load(folder / "config.yaml")
    # One name for each measure, explained once, and figures as they are read.
    for measure in ("online accuracy", "online kNN", "kNN accuracy", "untrained kNN"):
        assert said.count(f"  {measure}: ") == 1
    figures = {**summary, **summary["last_epoch"]}
    assert f"online kNN {figures['val_knn_acc1']:.2f} %" in said
    assert f"kNN accuracy {figures['knn_acc1']:.2f} %, untrained kNN " in said
    for key in ("val_acc1", "val_knn_acc5", "knn_acc1", "untrained_knn_acc1"):
        assert figures[key] == round(figures[key], 4)
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["simco_methods"]["config"]["method"] == cfg.method
    arguments = json.loads((folder / "checkpoints" / "args.json").read_text())
    assert arguments["method"] == cfg.method and arguments["data"]["num_classes"] == 10

    before = (folder / "summary.json").stat().st_mtime_ns
    assert pretrain(cfg) == folder
    assert "is finished: nothing is trained" in capsys.readouterr().out
    assert (folder / "summary.json").stat().st_mtime_ns == before
    # What was written runs again as it is.
    again = OmegaConf.merge(OmegaConf.load(folder / "config.yaml"), {"output_dir": str(folder)})
    assert pretrain(again) == folder


def test_a_finished_run_says_what_has_no_effect(tmp_path, capsys):
    folder = tmp_path / "it's #1"
    pretrain(quick("digits/simco", folder))
    capsys.readouterr()
    cfg = quick(
        "digits/simco", folder, performance__compile=True, analysis__enabled=True, name="new"
    )
    assert pretrain(cfg) == folder
    assert capsys.readouterr().out == (
        f"{folder} is finished: nothing is trained\n"
        "  without effect on a finished run: performance.compile=true (it was false), "
        "analysis.enabled=true (it was false), name=new (it was simco-digits)\n"
        f"  it was not analysed: simco-analyze {shlex.quote(f'{folder}/checkpoints/last.ckpt')}\n"
        "  to train anew, set output_dir=FOLDER or remove that folder\n"
    )


@pytest.mark.parametrize("name", ["it's #1, größe (2) {x} [日本]", "~a::b=c\\", " $x_$\n${x} "])
def test_a_run_in_a_folder_of_any_name(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    word = re.sub(r"[/\\\\:]", "", name)
    changes = {"output_dir": name, "checkpoint__dir": f"c/{name}", "name": word}
    cfg = quick("digits/simco", None, **{key: literal(value) for key, value in changes.items()})
    folder = pretrain(cfg)
    assert folder == Path(name) and (folder / "summary.json").is_file()
    (checkpoint,) = Path("c", name).glob("*/checkpoints/last.ckpt")
    again = OmegaConf.load(folder / "config.yaml")
    assert pretrain(again) == folder and again.name == word
    assert "without effect" not in capsys.readouterr().out
    extended = {"max_epochs": 3, "resume_from_checkpoint": literal(str(checkpoint))}
    assert len(rows(pretrain(quick("digits/simco", "more", name="x", **extended)))) == 3


@pytest.mark.parametrize(
    "name, loss",
    [
        ("simsiam_hardness", "train_neg_cos_sim"),
        ("byol_hardness", "train_neg_cos_sim"),
        ("supervised_hardness", "train_supervised_loss"),
    ],
)
def test_methods_without_negatives_name_none(name, loss, tmp_path, capsys):
    folder = pretrain(quick(f"digits/{name}", tmp_path / "run", max_epochs=1))
    said = capsys.readouterr().out
    assert "learning rate" in said and "negatives per anchor" not in said
    last = json.loads((folder / "summary.json").read_text())["last_epoch"]
    assert f"loss {last[loss]:.4f}, online accuracy {last['val_acc1']:.2f} %" in said


@pytest.mark.parametrize("leaf", THEIRS)
def test_methods_of_solo_learn_s_own(leaf, tmp_path, capsys):
    # So few images to validate on that they lack a class.
    few = {"optimizer__batch_size": 8, "limit_val_batches": 1}
    folder = pretrain(quick(leaf, tmp_path / "run", knn_eval__offline=True, **few))
    said = capsys.readouterr().out
    assert "host solo-learn" in said and "negatives per anchor" not in said
    assert said.count("loss ") == 3  # of two epochs, and at the end
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["last_epoch"].keys() & set(LOSSES)
    assert {"val_acc1", "val_knn_acc1"} <= summary["last_epoch"].keys()
    assert 0 < summary["knn_acc1"] <= 100
    report([folder], tmp_path)
    assert f"| {summary['method']} " not in (tmp_path / "table.md").read_text()  # but its name


def test_methods_of_solo_learn_s_own_without_it(tmp_path):
    known = "|".join(METHODS) if HOST == "builtin" else "simclr"
    with pytest.raises(ValueError, match=f"method='moco' is none of .*({known})"):
        pretrain(quick("digits/simco", tmp_path / "run", method="moco"))
    if HOST == "builtin":
        with pytest.raises(ValueError, match="solo-learn's own need solo-learn on the path"):
            pretrain(quick("digits/baselines/byol", tmp_path / "run"))
    else:
        with pytest.raises(ValueError, match="solo-learn's byol refuses the config: .*pred_hidden"):
            kwargs = {"proj_hidden_dim": 8, "proj_output_dim": 8}
            pretrain(quick("digits/baselines/byol", tmp_path / "run", method_kwargs=kwargs))
        with pytest.raises(ValueError, match="solo-learn's byol needs labels"):
            pretrain(quick("digits/baselines/byol", tmp_path / "run", data__no_labels=True))
        with pytest.raises(ValueError, match="temprature is unknown to solo-learn's nnclr; did"):
            kwargs = {"temprature": 0.2}
            pretrain(quick("digits/baselines/nnclr", tmp_path / "run", method_kwargs=kwargs))
    assert not (tmp_path / "run").exists()


def test_each_run_has_its_own_run_of_wandb(tmp_path, wandb):
    for seed in (5, 6):
        changes = {"wandb": {"enabled": True, "offline": True}, "max_epochs": 1, "seed": seed}
        folder = pretrain(quick("digits/simco", tmp_path / str(seed), **changes))
        assert len(list((folder / "wandb").glob("offline-run-*"))) == 1


def test_another_configuration_is_not_continued(tmp_path):
    folder = pretrain(quick("digits/simco", tmp_path / "run", max_epochs=1))
    with pytest.raises(ValueError, match="method_kwargs.tau_beta: 1.0 there, 2.0 here"):
        pretrain(quick("digits/simco", folder, max_epochs=1, method_kwargs__tau_beta=2.0))
    with pytest.raises(ValueError, match="max_epochs: 1 there, 2 here"):
        pretrain(quick("digits/simco", folder, max_epochs=2))


def test_runs_of_a_sweep_under_one_name_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [
        pretrain(quick("digits/simco", None, max_epochs=1, method_kwargs__tau_beta=tau))
        for tau in (0.5, 1.0)
    ]
    assert folders[0].parent == folders[1].parent and folders[0] != folders[1]
    assert str(folders[0]).startswith("runs/simco-digits/")


def test_a_flat_unlabelled_folder(tmp_path, capsys):
    generator = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for i in range(20):
        pixels = generator.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    changes = {
        "data__train_path": str(tmp_path / "images"),
        "optimizer__batch_size": 8,
        "augmentations__0__crop_size": 16,
        "knn_eval__offline": True,
    }
    for said_so in (True, False):
        folder = pretrain(
            quick("custom/simco", tmp_path / f"run{said_so}", data__no_labels=said_so, **changes)
        )
        table = rows(folder)
        assert len(table) == 2 and float(table[-1]["train_nce_loss"]) > 0
        assert not [name for name in table[-1] if "acc" in name or name.startswith("val_")]
        assert not [name for name in weights(folder) if name.startswith("classifier")]
        summary = json.loads((folder / "summary.json").read_text())
        assert "knn_acc1" not in summary
        assert (folder / "curves.png").exists()
    assert "no class folders: training without labels" in capsys.readouterr().out


def test_checkpoints_of_several_epochs_are_kept(tmp_path):
    folder = pretrain(
        quick(
            "digits/simco",
            tmp_path / "run",
            max_epochs=3,
            checkpoint={"frequency": 2, "keep_prev": True, "dir": str(tmp_path / "ckpt")},
        )
    )
    found = sorted(p.name for p in (tmp_path / "ckpt").rglob("*.ckpt"))
    assert found == ["epoch=1.ckpt", "epoch=2.ckpt", "last.ckpt"]
    assert not list(folder.rglob("*.ckpt"))


def test_an_explicit_checkpoint_extends_a_run(tmp_path):
    first = pretrain(quick("digits/mocov2", tmp_path / "first", max_epochs=1))
    checkpoint = str(first / "checkpoints" / "last.ckpt")
    longer = pretrain(
        quick("digits/mocov2", tmp_path / "longer", max_epochs=3, resume_from_checkpoint=checkpoint)
    )
    table = rows(longer)
    assert [row["epoch"] for row in table] == ["0", "1", "2"]
    # At the rates of the longer schedule: 3 warm-up steps of 9, then a cosine; after step 6 and 9.
    peak = 0.12 * 16 / 256
    assert [float(row["lr"]) for row in table[1:]] == pytest.approx([peak / 2, 0])
    with pytest.raises(ValueError, match="max_epochs: 3 there, 2 here"):
        own = str(longer / "checkpoints" / "last.ckpt")
        pretrain(quick("digits/mocov2", tmp_path / "less", resume_from_checkpoint=own))
    with pytest.raises(ValueError, match="To extend that run, .*_checkpoint=.*last.ckpt"):
        pretrain(quick("digits/mocov2", first, max_epochs=3))
    with pytest.raises(FileNotFoundError, match="resume_from_checkpoint=nowhere.ckpt"):
        pretrain(quick("digits/mocov2", tmp_path / "no", resume_from_checkpoint="nowhere.ckpt"))
    with pytest.raises(ValueError, match="method_kwargs.queue_size: 1024 there, 64 here"):
        pretrain(
            quick(
                "digits/mocov2",
                tmp_path / "other",
                method_kwargs__queue_size=64,
                resume_from_checkpoint=checkpoint,
            )
        )


@pytest.mark.parametrize("leaf", [*OURS, *THEIRS])
def test_the_untrained_network_is_made_again_bit_for_bit(leaf):
    parsed = parse(complete(quick(leaf, None)), 1)
    asked = OmegaConf.to_container(parsed)
    first = train.build_model(parsed).state_dict()
    torch.rand(7), np.random.rand(7)
    second = train.build_model(parsed).state_dict()
    assert first.keys() == second.keys() and OmegaConf.to_container(parsed) == asked
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_the_untrained_encoder_is_measured_after_training(tmp_path, monkeypatch):
    """As it was before the first step, also for a run that goes on from a checkpoint."""
    cfg = quick("digits/mocov2", tmp_path / "run", knn_eval__offline=True, max_epochs=1)
    run = train.prepare(cfg)
    arguments = run.data, torch.device("cpu"), cfg.knn_eval.k, cfg.knn_eval.distance_func
    [before] = offline_knn([run.model], *arguments)
    epochs = []

    def measured(*arguments):
        epochs.append(len(run.recorder.history))
        return offline_knn(*arguments)

    monkeypatch.setattr(train, "offline_knn", measured)
    folder = run.fit()
    assert epochs == [1]
    untrained = {f"untrained_{key}": round(value, 4) for key, value in before.items()}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary.items() >= untrained.items() and summary["knn_acc1"] != before["knn_acc1"]
    checkpoint = folder / "checkpoints" / "last.ckpt"
    longer = {"knn_eval__offline": True, "resume_from_checkpoint": str(checkpoint)}
    again = pretrain(quick("digits/mocov2", tmp_path / "longer", **longer))
    assert json.loads((again / "summary.json").read_text()).items() >= untrained.items()

    # A checkpoint of earlier versions holds what was measured before training.
    state = torch.load(checkpoint, weights_only=True)
    state["callbacks"]["Recorder"]["untrained"] = {"knn_acc1": 12.5, "knn_acc5": 50.0}
    torch.save(state, checkpoint)
    again = pretrain(quick("digits/mocov2", tmp_path / "older", **longer))
    assert json.loads((again / "summary.json").read_text())["untrained_knn_acc1"] == 12.5


@pytest.mark.parametrize("loader, precision", [("workers", "32-true"), ("device", "bf16-mixed")])
def test_nothing_is_warned_of_that_a_user_cannot_change(
    loader, precision, tmp_path, recwarn, caplog
):
    """Of more workers than cores, epochs shorter than between two logs, a summary of the model."""
    changes = {"data__num_workers": 4, "log_every_n_steps": 50, "precision": precision}
    cfg = quick("digits/simco", tmp_path, data__loader=loader, knn_eval__offline=True, **changes)
    run = train.prepare(cfg)
    run.fit()
    ignored = (DeprecationWarning, FutureWarning)  # of other libraries, which Python hides
    assert [str(w.message) for w in recwarn if not issubclass(w.category, ignored)] == []
    assert [record.getMessage() for record in caplog.records] == []
    assert run.trainer.log_every_n_steps == 3


def test_checkpoints_of_something_else_are_named(tmp_path):
    folder = pretrain(quick("digits/simco", tmp_path / "run", max_epochs=1))
    (folder / "summary.json").unlink()
    exported = tmp_path / "backbone.pth"
    torch.save({"conv1.weight": torch.zeros(1)}, exported)
    with pytest.raises(ValueError, match="backbone.pth is no checkpoint.*not written by simco"):
        pretrain(quick("digits/simco", tmp_path / "b", resume_from_checkpoint=str(exported)))
    last = folder / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(last, weights_only=True)
    checkpoint["PretrainData"]["next_epoch"] = 10
    torch.save(checkpoint, last)
    with pytest.raises(ValueError, match="has 10 epochs, more than max_epochs=1"):
        pretrain(quick("digits/simco", folder, max_epochs=1))


def test_old_checkpoints_are_left_where_hours_are_limited(tmp_path, capsys):
    changes = {"max_epochs": 1, "auto_resume": {"enabled": True, "max_hours": 0}}
    folder = pretrain(quick("digits/simco", tmp_path / "run", **changes))
    (folder / "summary.json").unlink()
    capsys.readouterr()
    pretrain(quick("digits/simco", folder, **changes))
    assert "hours old (auto_resume.max_hours=0): starts anew" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["adam", "adamw", "lars"])
def test_other_optimisers(name, tmp_path):
    folder = pretrain(quick("digits/simco", tmp_path / "run", max_epochs=1, optimizer__name=name))
    assert float(rows(folder)[0]["train_nce_loss"]) > 0


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_other_precisions(precision, tmp_path):
    folder = pretrain(
        quick(
            "digits/mocov2",
            tmp_path / "run",
            max_epochs=1,
            precision=precision,
            knn_eval__offline=True,
        )
    )
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["knn_acc1"] > 0
    assert weights(folder)["queues.0.keys"].dtype == torch.float32


def test_places_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="the run's folder cannot be made.*file"):
        pretrain(quick("digits/simco", tmp_path / "file"))


def test_lightning_s_refusals_are_passed_on(tmp_path):
    with pytest.raises(ValueError, match="Lightning refuses these settings"):
        # More of them than any machine has.
        pretrain(quick("digits/simco", tmp_path / "run", accelerator="gpu", devices=[97]))


def test_nothing_is_built_for_a_bad_config(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("something was built")

    unbuilt = type("Unbuilt", (METHODS["simco"],), {"__init__": refuse})
    monkeypatch.setitem(METHODS, "simco", unbuilt)
    monkeypatch.setattr(train, "PretrainData", refuse)
    cfg = quick("digits/simco", tmp_path / "run", optimizer__learning_rate=1)
    with pytest.raises(ValueError, match="optimizer.learning_rate is no key of the runner"):
        pretrain(cfg)
    assert not (tmp_path / "run").exists()


def test_evaluating_does_not_change_the_training(tmp_path):
    one, other = (
        weights(
            pretrain(quick("digits/simco", tmp_path / str(on), max_epochs=1, knn_eval__offline=on))
        )
        for on in (True, False)
    )
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("first", [True, False])
def test_compiling_on_or_off_is_the_same_run(first, tmp_path, monkeypatch, capsys):
    """A run goes on from the other's checkpoint, whose names are the same."""

    def traced(function, device):
        return torch.compile(function, dynamic=False, backend="aot_eager")

    monkeypatch.setattr(compiling, "compiled", traced)
    changes = {"performance__compile": first, "max_epochs": 1, "limit_val_batches": 1}
    plain = set(weights(pretrain(quick("digits/simmoco", tmp_path / "plain", max_epochs=1))))
    cfg = quick("digits/simmoco", tmp_path / "one", **changes)
    assert set(weights(pretrain(cfg))) == plain
    changes |= {"performance__compile": not first, "max_epochs": 2}
    changes["resume_from_checkpoint"] = str(tmp_path / "one/checkpoints/last.ckpt")
    folder = pretrain(quick("digits/simmoco", tmp_path / "two", **changes))
    assert (
        len(rows(folder)) == 2 and capsys.readouterr().out.count("(performance.compile=true)") == 1
    )
    torch._dynamo.reset()
