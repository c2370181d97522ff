"""``simco-analyze`` on checkpoints: its files, what it measures, that nothing else changes it."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from simco_methods.analysis import ANALYSES, gradient, hardness, stored
from simco_methods.analysis.consistency import by_age, by_order
from simco_methods.analysis.encoder import load_checkpoint
from simco_methods.analysis.samples import Samples, scalar_temperature
from simco_methods.analysis.stored import Stored
from simco_methods.losses import (
    anchor_hardness,
    l2_normalize,
    penalty_entropy,
    relative_penalty,
)
from tests.analysis.conftest import SMALL, analyze, parsed
from tests.helpers import run_script


def samples(checkpoint, *arguments):
    settings = parsed([*SMALL, *arguments])
    return Samples(load_checkpoint(checkpoint, settings.config), settings)


def table(folder, name):
    with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "leaf, made",
    [("digits/mocov2", list(ANALYSES)), ("digits/simco", [n for n in ANALYSES if n[0] != "c"])],
)
def test_all_of_it_is_written(leaf, made, runs, tmp_path, capsys):
    folder = analyze(runs(leaf) / "last.ckpt", [*SMALL, f"out={tmp_path / 'out'}"])
    page = (folder / "report.html").read_text(encoding="utf-8")
    for name in made:
        rows, content = table(folder, name), json.loads((folder / f"{name}.json").read_text())
        assert len(rows) == len(content["rows"]) > 0
        assert content["title"] in page
        pixels = np.asarray(Image.open(folder / f"{name}.png").convert("L"))
        assert pixels.shape[0] > 300 and pixels.std() > 10
    assert page.count("data:image/png;base64,") == len(made) + 1  # and the anchors as images
    assert (folder / "hardness-images.png").is_file()
    said = capsys.readouterr().out
    left_out = "consistency needs stored keys" in said
    assert left_out == ("consistency" not in made) == ("Not made" in page)
    assert "<h2>Consistency of keys</h2>" in page
    if leaf == "digits/mocov2":
        assert "3 batches of 32" in said and "keys of the momentum encoder" in said


def test_by_default_beside_the_checkpoint(runs):
    folder = analyze(runs("digits/simco") / "last.ckpt", [*SMALL, "analysis=geometry"])
    assert folder == runs("digits/simco") / "last-analysis"
    assert {f.name for f in folder.iterdir()} >= {"geometry.csv", "geometry.png", "report.html"}


def test_a_run_s_folder_is_its_checkpoint(runs, tmp_path, monkeypatch):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    shutil.copy(runs("digits/simco") / "last.ckpt", run / "checkpoints")
    folder = analyze(run, [*SMALL, "analysis=geometry"])
    assert folder == run / "checkpoints" / "last-analysis" and (folder / "report.html").is_file()
    with pytest.raises(FileNotFoundError, match="it holds the folders of runs .run.: name one"):
        analyze(tmp_path, SMALL)


def test_neither_batches_nor_workers_nor_the_other_analyses_change_it(runs, tmp_path):
    checkpoint = runs("digits/mocov2") / "last.ckpt"
    tables = []
    for number, arguments in enumerate(
        [
            ["batch_size=256", "num_workers=0"],
            ["batch_size=7", "num_workers=2"],
            ["analysis=geometry,penalty", "batch_size=96"],
        ]
    ):
        folder = analyze(checkpoint, [*SMALL, *arguments, f"out={tmp_path / str(number)}"])
        tables.append([table(folder, name) for name in ("penalty", "geometry")])
    for other in tables[1:]:
        for rows, expected in zip(other, tables[0], strict=True):
            for row, reference in zip(rows, expected, strict=True):
                for key, value in reference.items():
                    if key != "representation":
                        assert float(row[key]) == pytest.approx(float(value), rel=2e-4), key
    other = analyze(checkpoint, [*SMALL, "seed=1", f"out={tmp_path / 'seed'}"])
    assert table(other, "penalty")[0] != tables[0][0][0]


def test_penalty_is_of_the_anchors_and_the_dictionary(runs):
    """The rows against the definitions, on embeddings made here by the model itself."""
    checkpoint = runs("digits/mocov2") / "last.ckpt"
    found = samples(checkpoint)
    rows = ANALYSES["penalty"].run(found).rows
    loaded = found.checkpoint
    query, key, keys = [], [], []
    with torch.no_grad():
        for item in found.pairs.items:
            for view, network, out in (
                (0, loaded.online, query),
                (1, loaded.momentum, key),
            ):
                (image,) = found.views([item], view, seed=0)
                out.append(network(image)[1])
        for item in found.dictionary_items[:200]:
            (image,) = found.views([item], 1, seed=0)
            keys.append(loaded.momentum(image)[1])
    query, key, keys = (torch.cat(rows).double() for rows in (query, key, keys))
    for row in rows:
        tau, bank = row["temperature"], keys[: row["size"]]
        entropies = [
            penalty_entropy(relative_penalty(query[i : i + 32], key[i : i + 32], bank, tau))
            for i in (0, 32, 64)
        ]
        mean, std = torch.stack(entropies).mean().item(), torch.stack(entropies).std().item()
        assert row["anchor_entropy"] == pytest.approx(mean, abs=1e-6)
        assert row["anchor_entropy_std"] == pytest.approx(std, rel=0.02, abs=1e-7)
        w = anchor_hardness(query, key, bank, tau)
        assert row["hardness"] == pytest.approx(w.mean().item(), rel=1e-4)
        assert row["hardness_variation"] == pytest.approx((w.std() / w.mean()).item(), rel=1e-2)


def test_no_key_is_of_an_anchor_and_every_view_is_new(runs):
    found = samples(runs("digits/simco") / "last.ckpt", "passes=2", "sizes=[600]")
    anchors = {image for _, image in found.pairs.items}
    keys = found.dictionary_items
    assert len(anchors) == 96 and not anchors & {image for _, image in keys}
    assert len(set(keys)) == len(keys) == 2 * (400 - 96)
    distance = torch.cdist(found.dictionary[:296], found.dictionary[304:]).diagonal()
    # An 8-pixel digit has few crops: now and then two views are the same.
    assert found.dictionary.shape[0] == 600 and (distance > 1e-2).float().mean() > 0.98


def test_hardest_and_easiest_anchors(runs):
    finding = ANALYSES["hardness"].run(samples(runs("digits/mocov2") / "last.ckpt"))
    ends = [[e["hardness"] for e in finding.summary[end]] for end in ("hardest", "easiest")]
    assert ends[0] == sorted(ends[0], reverse=True) and ends[1] == sorted(ends[1])
    assert min(ends[0]) > max(ends[1])
    assert [row["temperature"] for row in finding.rows] == [0.05, 0.1, 0.5]  # and of training


def test_hardness_rows():
    rows = hardness.measure(torch.tensor([[0.05, 0.5, 0.95, 0.99]]), [0.1])
    assert rows[0]["easy"] == 0.25 and rows[0]["hard"] == 0.5
    assert rows[0]["q50"] == pytest.approx(0.725) and rows[0]["mean"] == pytest.approx(0.6225)


# ---- consistency ---------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["digits/mocov2", "digits/mocov2plus", "digits/decoupled_moco"])
def test_stored_keys_are_made_again_exactly(leaf, runs):
    """Where the momentum encoder stands still, a key of any age is what it would be today."""
    still = {"momentum__base_tau": 1.0, "momentum__final_tau": 1.0, "method_kwargs__queue_size": 80}
    finding = ANALYSES["consistency"].run(samples(runs(leaf, **still) / "last.ckpt"))
    # Batches of 16 in a queue of 80, the last five of twelve, over the epochs' border.
    assert [row["age"] for row in finding.rows] == [0, 1, 2, 3, 4]
    for row in finding.rows:
        assert row["cosine"] == pytest.approx(1, abs=1e-5) and row["found"] == 1
        assert row["different"] < 0.9999
    for row in finding.summary["orders"]:
        assert row["agreement"] == pytest.approx(1, abs=1e-4)


def test_the_batch_statistics_are_those_of_training(runs, monkeypatch):
    """Of two processes of 8 images, with and without synchronised batch norm."""
    still = {"momentum__base_tau": 1.0, "momentum__final_tau": 1.0, "method_kwargs__queue_size": 80}
    found = samples(runs("digits/mocov2", **still) / "last.ckpt")
    found.checkpoint.cfg.optimizer.batch_size = 8
    rows = ANALYSES["consistency"].run(found).rows
    assert min(row["cosine"] for row in rows) == pytest.approx(1, abs=1e-5)
    whole = stored._made_anew
    monkeypatch.setattr(stored, "_made_anew", lambda net, images, _: whole(net, images, 8))
    apart = list(stored.queued_keys(found))
    monkeypatch.undo()
    queue = found.checkpoint.queues[0]
    for group in apart:
        queue.keys[(queue.ages() == group.age).nonzero().squeeze(1)] = group.today
    rows = ANALYSES["consistency"].run(found).rows
    assert min(row["cosine"] for row in rows) == pytest.approx(1, abs=1e-5)
    assert by_age(apart)[0]["cosine"] < 0.9999


def test_keys_drift_with_age(runs):
    drifting = {"momentum__base_tau": 0.5, "momentum__final_tau": 0.5, "optimizer__lr": 2.0}
    checkpoint = runs("digits/mocov2", **drifting) / "last.ckpt"
    rows = ANALYSES["consistency"].run(samples(checkpoint)).rows
    assert [row["age"] for row in rows] == list(range(12)) and rows[-1]["cosine"] < 0.999
    assert rows[0]["cosine"] > rows[-1]["cosine"]
    with pytest.raises(ValueError, match="not the images that it was trained on"):
        ANALYSES["consistency"].run(
            samples(checkpoint, "data.train_images_per_class=9", "sizes=[8]", "batches=1")
        )


def test_earlier_checkpoints_do_for_any_method(runs):
    folder = runs("digits/simco")
    earlier = f"earlier=['{folder / 'epoch=0.ckpt'}']"
    rows = ANALYSES["consistency"].run(samples(folder / "last.ckpt", earlier)).rows
    assert [row["age"] for row in rows] == [6] and 0 < rows[0]["cosine"] < 1
    with pytest.raises(ValueError, match=r"there are epoch=0.ckpt, epoch=1.ckpt"):
        ANALYSES["consistency"].run(samples(folder / "last.ckpt"))
    with pytest.raises(ValueError, match="is of step 12, not before step 12"):
        finding = samples(folder / "last.ckpt", f"earlier=['{folder / 'last.ckpt'}']")
        ANALYSES["consistency"].run(finding)


def test_consistency_of_made_up_keys():
    """A common rotation of old keys leaves them alike to one another, but not to today's."""
    generator = torch.Generator().manual_seed(0)
    today = [l2_normalize(torch.randn(64, 8, generator=generator)) for _ in range(4)]
    turn, _ = torch.linalg.qr(torch.randn(8, 8, generator=generator))
    groups = [
        Stored(10 * age, keys @ torch.linalg.matrix_power(turn, age), keys)
        for age, keys in enumerate(today)
    ]
    ages = {row["age"]: row for row in by_age(groups)}
    assert ages[0]["cosine"] == pytest.approx(1) and ages[0]["found"] == 1
    assert ages[30]["cosine"] == pytest.approx(
        (groups[3].stored * today[3]).sum(1).mean().item(), abs=1e-6
    )
    orders = {row["order"]: row for row in by_order(groups, size=64)}
    assert (orders["recent"]["age"], orders["earliest"]["age"]) == (0, 30)
    assert orders["recent"]["agreement"] == pytest.approx(1)
    assert orders["earliest"]["agreement"] == pytest.approx(1)
    assert orders["random"]["agreement"] < 0.8 and orders["random"]["age_std"] > 5


def test_a_mixed_dictionary_takes_each_view_once():
    """Noise that is the same at every age: no order is more consistent than another."""
    generator = torch.Generator().manual_seed(0)
    today = l2_normalize(torch.randn(256, 32, generator=generator))
    groups = [
        Stored(age, l2_normalize(today + 0.2 * torch.randn(256, 32, generator=generator)), today)
        for age in range(16)
    ]
    agreements = [row["agreement"] for row in by_order(groups, same_views=True)]
    assert max(agreements) - min(agreements) < 0.05
    assert [row["keys"] for row in by_order(groups, same_views=True)] == [256] * 3


def test_a_queue_of_one_batch_has_no_ages(runs):
    checkpoint = runs("digits/mocov2", method_kwargs__queue_size=8) / "last.ckpt"
    with pytest.raises(ValueError, match="has a queue of no more than one batch"):
        ANALYSES["consistency"].run(samples(checkpoint, "sizes=[8]"))


def test_one_that_fails_does_not_lose_the_others(runs, tmp_path, monkeypatch):
    def fail(samples):
        raise ValueError("not here")

    monkeypatch.setattr(ANALYSES["geometry"], "run", fail)
    folder = analyze(runs("digits/simco") / "last.ckpt", [*SMALL, f"out={tmp_path}"])
    assert "Not made: not here" in (folder / "report.html").read_text(encoding="utf-8")
    assert (folder / "gradient.csv").is_file()


@pytest.mark.parametrize(
    "kwargs, tau",
    [
        ({"tau": 0.2}, 0.2),
        ({"tau_alpha": 0.1, "tau_beta": 1.0}, 1.0),
        ({"temperature": 0.3}, 0.3),
        ({"vector": {"tau": 0.1}, "scalar": {"tau": 0.5}}, 0.5),
        ({}, 0.1),
    ],
)
def test_the_temperature_that_weighs_the_anchors(kwargs, tau):
    assert scalar_temperature(OmegaConf.create({"method_kwargs": kwargs})) == tau


def test_embeddings_that_are_not_finite_are_named(runs, tmp_path):
    def spoil(content):
        content["state_dict"]["projector.2.bias"].fill_(torch.nan)

    path = altered(runs("digits/simco") / "last.ckpt", tmp_path / "nan.ckpt", spoil)
    with pytest.raises(ValueError, match="nan.ckpt are not finite"):
        analyze(path, [*SMALL, f"out={tmp_path}"])


# ---- gradient ------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["digits/mocov2", "digits/simco"])
def test_eq4_holds_on_real_embeddings(leaf, runs):
    finding = ANALYSES["gradient"].run(samples(runs(leaf) / "last.ckpt", "temperatures=[0.01,1]"))
    assert finding.summary["largest_error_float64"] < 1e-10
    assert 0 < finding.summary["largest_error_float32"] < 1e-4


def test_a_wrong_decomposition_would_be_seen(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    query, key = l2_normalize(torch.randn(2, 8, 4, generator=generator))
    right, _ = gradient.measure(query, key, None, [0.5])
    assert right[0]["error_float64"] < 1e-12
    weigh = gradient.anchor_hardness
    monkeypatch.setattr(gradient, "anchor_hardness", lambda *args: weigh(*args) * 1.01)
    wrong, _ = gradient.measure(query, key, None, [0.5])
    assert wrong[0]["error_float64"] > 0.005


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["temperatures=[0.1,0]"], r"temperatures=\[0.1, 0\]: must be a list, each a finite"),
        (["analysis=penalti"], "each one of all, penalty, hardness"),
        (["anlysis=penalty"], "anlysis is no setting.*did you mean analysis"),
        (["batches=0"], "batches=0: must be a whole number of at least 1"),
        (["sizes=[1]"], "each a whole number of at least 2"),
        (["penalty"], "penalty is not of the form key=value"),
        (["batches=13"], "13 batches of 32 anchors are 416 images, the data has 400"),
        (["sizes=[305]"], r"305 keys was asked for; 2 to 304 .* set passes higher"),
        (["keys=queue", "sizes=[200]"], "200 keys was asked for; 2 to 192 .* checkpoint's queue"),
        (["anchors=400", "batches=1"], "the dictionary is empty: 0 keys beside the 400 anchors"),
        (["analysis=consistency", "split=val"], "set split=train"),
        (["backbone.name=resnet18"], "resnet18 cannot be built so: .*channels"),
        (["backbone.kwargs.layers=[1,1,1,2]"], "not of backbone.name=micro_resnet: .* is not"),
        (["backbone.kwargs.channels=[8,8,16,32]"], r"has the shape .*, not"),
        (["backbone.name=resnet"], "backbone.name='resnet' is none of"),
        (["device=cuda:99"], "device=cuda:99: not on this machine"),
        (["data.dataset=cifar"], "data.dataset='cifar': must be one of digits"),
        (["data.trian_path=x"], "data.trian_path is no key .* did you mean data.train_path"),
        (["data=5"], "data=5: must be a mapping"),
        (["augmentations.0.crop_size=64"], "augmentations must be given whole"),
    ],
)
def test_bad_settings_are_named(arguments, message, runs, tmp_path):
    given = [a for a in SMALL if not any(a.split("=")[0] == b.split("=")[0] for b in arguments)]
    with pytest.raises(ValueError, match=message):
        analyze(runs("digits/mocov2") / "last.ckpt", [*given, *arguments, f"out={tmp_path}"])


def altered(checkpoint, path, change):
    content = torch.load(checkpoint, weights_only=True)
    change(content)
    torch.save(content, path)
    return path


def test_bad_checkpoints_are_named(runs, tmp_path):
    checkpoint, new = runs("digits/mocov2") / "last.ckpt", tmp_path / "new.ckpt"

    def without(prefix):
        def change(content):
            for key in [k for k in content["state_dict"] if k.startswith(prefix)]:
                del content["state_dict"][key]

        return change

    def set_state(key, value):
        return lambda content: content["state_dict"].__setitem__(key, value)

    for change, message in [
        (without("projector"), "has no projector"),
        (without("momentum_backbone"), "has no momentum_backbone"),
        (without("backbone.conv1"), "conv1.weight is not there"),
        (lambda c: c.pop("state_dict"), "it has no state_dict"),
        (lambda c: c.pop("simco_methods"), "set backbone.name="),
        (set_state("projector.0.weight", torch.zeros(2, 2, 2)), "neither linear nor a batch norm"),
        (set_state("projector.mlp.weight", torch.zeros(2)), "no sequence of layers"),
        (set_state("projector.0.weight", torch.zeros(128, 9)), "takes 9 features"),
        (lambda c: c.update(what=OmegaConf.create({"a": 1})), "trusted=true"),
    ]:
        with pytest.raises(ValueError, match=message):
            analyze(altered(checkpoint, new, change), [*SMALL, f"out={tmp_path}"])
    for content in (b"", b"not a checkpoint"):
        new.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read as a checkpoint"):
            analyze(new, SMALL)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        analyze(tmp_path / "none.ckpt", SMALL)


def test_an_empty_queue_is_named(runs, tmp_path):
    def empty(content):
        content["state_dict"]["queues.0.written"].fill_(-1)

    path = altered(runs("digits/mocov2") / "last.ckpt", tmp_path / "empty.ckpt", empty)
    with pytest.raises(ValueError, match="the dictionary is empty: 0 keys of the queue"):
        analyze(path, [*SMALL, "keys=queue", "analysis=penalty"])
    with pytest.raises(ValueError, match="is empty: no key has reached it"):
        analyze(path, [*SMALL, "analysis=consistency"])


def test_trusted_reads_what_is_trusted(runs, tmp_path):
    path = altered(
        runs("digits/simco") / "last.ckpt",
        tmp_path / "a.ckpt",
        lambda c: c.update(what=OmegaConf.create({"a": 1})),
    )
    folder = analyze(path, [*SMALL, "analysis=geometry", "trusted=true"])
    assert (folder / "geometry.csv").is_file()


def test_as_a_command(runs, tmp_path):
    checkpoint = runs("digits/simco") / "last.ckpt"
    command = ("-m", "simco_methods.analyze")
    done = run_script(*command, cwd=tmp_path)
    assert done.returncode == 2 and "usage: simco-analyze CKPT" in done.stderr
    assert "temperatures" in done.stderr and "passes" in done.stderr
    done = run_script(*command, checkpoint, "sizes=[9999]", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("simco-analyze: a dictionary of 9999")
    arguments = [*SMALL, "analysis=geometry", "out=here"]
    done = run_script(*command, checkpoint, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "geometry.png").is_file()
