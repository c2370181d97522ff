"""The benchmark compares things that are equal, and reports what it measured."""

import json
import math

import pytest
import torch
from PIL import Image

from simco_methods.benchmark import __main__ as benchmark
from simco_methods.benchmark import augmentation, losses, report, scaling
from simco_methods.benchmark.textbook import every_view_through_both
from simco_methods.benchmark.timing import Comparison, in_turns
from simco_methods.methods import METHODS
from tests.helpers import batch, build, model_config

CPU = torch.device("cpu")


@pytest.mark.parametrize("theirs", [losses.theirs, losses.theirs_one_product])
def test_both_losses_are_the_same(theirs):
    results = []
    for loss in (losses.ours, theirs):
        sides = losses.pair(300, CPU)
        value = loss(*sides)
        value.backward()
        results.append([value.detach(), *(side.grad for side in sides)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_both_queued_losses_are_the_same():
    sides, queue = losses.pair(32, CPU), losses.rows(500, CPU, 2)
    found = [loss(*sides, queue) for loss in (losses.queued, losses.queued_textbook)]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("method", ["simco", "simmoco", "mocov2"])
def test_the_other_step_trains_the_same(method):
    """It only forwards more."""
    lean = build(method)
    torch.manual_seed(0)
    every = every_view_through_both(METHODS[method])(model_config(method))
    every.load_state_dict(lean.state_dict(), strict=False)
    counts = []
    for model in (lean, every):
        calls = []
        for module in (model.backbone, getattr(model, "momentum_backbone", None)):
            if module is not None:
                module.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        if hasattr(model, "unused"):
            model.unused[0].register_forward_hook(lambda *_, calls=calls: calls.append(1))
        # Without labels: the probe sees both views there.
        model.loss = model.training_step(batch(labelled=False), 0)
        counts.append(len(calls))
    assert counts == [2, 4]
    torch.testing.assert_close(lean.loss, every.loss)
    for model in (lean, every):
        model.loss.backward()
    theirs = dict(every.named_parameters())
    for name, parameter in lean.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, theirs[name].grad)


def test_a_comparison_is_of_pairs():
    found = Comparison("loss", "this", "that", [1.0, 2.0, 4.0], [3.0, 4.0, 4.0], "ms", 1.5)
    assert found.ratios == [3.0, 2.0, 1.0] and found.ratio == 2.0
    assert str(found) == "loss: this, against that: 2.00 (1.00 to 3.00), 2 against 4 ms, target 1.5"
    assert "2.00" in report.table([found]) and "1.00 - 3.00" in report.table([found])


def test_a_report_keeps_the_parts_that_were_not_measured_again(tmp_path):
    def found(part, value):
        return Comparison(part, "this", "that", [value], [3.0], "ms")

    report.write(tmp_path, CPU, [found("loss", 1.0), found("step", 1.0)], {})
    text = {"scaling": {"data": [1], "text": "a table"}}
    report.write(tmp_path, CPU, [found("step", 2.0)], text)
    report.write(tmp_path, CPU, [], {})
    content = json.loads((tmp_path / "benchmark.json").read_text())
    assert [(c["part"], c["ratio"]) for c in content["comparisons"]] == [
        ("loss", 3.0),
        ("step", 1.5),
    ]
    assert content["more"] == text and "a table" in (tmp_path / "benchmark.md").read_text()
    content["hardware"] = "another machine"
    (tmp_path / "benchmark.json").write_text(json.dumps(content))
    report.write(tmp_path, CPU, [found("step", 2.0)], {})
    assert len(json.loads((tmp_path / "benchmark.json").read_text())["comparisons"]) == 1


def test_sides_are_timed_in_turns():
    order = []
    found = in_turns(lambda: order.append("a"), lambda: order.append("b"), 4, seconds=0.0)
    assert [len(side) for side in found] == [4, 4]
    # After warming up, now the one first, now the other.
    assert "".join(order) == "abab" + "baabbaab"


def test_gathers_on_paper():
    rows = {row["processes"]: row for row in scaling.on_paper(batch=256, dim=128)}
    # 512 processes x 256 rows x 128 numbers x 4 bytes, of two views, from the 511 others.
    assert rows[512]["gather_mib"] == pytest.approx(2 * 511 * 256 * 128 * 4 / 2**20)
    assert rows[8]["network_gflop"] == rows[64]["network_gflop"]


def test_pictures_are_of_the_folder_or_noise(tmp_path):
    noise = augmentation.pictures(None, 12)
    assert noise.images.shape == (12, 32, 32, 3) and len(noise.classes) == 10
    for number in range(4):
        (tmp_path / f"class{number % 2}").mkdir(exist_ok=True)
        picture = Image.new("RGB", (20, 20), (number, 0, 0))
        picture.save(tmp_path / f"class{number % 2}" / f"{number}.png")
    found = augmentation.pictures(str(tmp_path), 2)
    assert found.images[:, 0, 0, 0].tolist() == [0, 3] and found.labels.tolist() == [0, 1]


def test_nothing_measured_is_no_ratio(tmp_path):
    found = Comparison("loss", "memory", "that", [0.0], [3.0], "MiB")
    assert math.isnan(found.ratio)
    other = Comparison("step", "this", "that", [1.0], [3.0], "ms")
    report.write(tmp_path, CPU, [found, other], {})
    report.write(tmp_path, CPU, [other], {})
    content = json.loads((tmp_path / "benchmark.json").read_text())
    assert [c["ratio"] for c in content["comparisons"]] == [None, 3.0]
    assert (tmp_path / "benchmark.png").exists()


def test_a_folder_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit):
        benchmark.main(["cpu", "--data", "nowhere"])
    assert "there is no folder nowhere" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_all_of_it_runs(kind, tmp_path, capsys):
    benchmark.main([kind, "--quick", "--out", str(tmp_path)])
    content = json.loads((tmp_path / "benchmark.json").read_text())
    parts = {comparison["part"] for comparison in content["comparisons"]}
    assert parts == {"loss", "augmentation", "step", "epoch"}
    assert all(c["ratio"] > 0 for c in content["comparisons"] if "memory" not in c["what"])
    assert (tmp_path / "benchmark.png").stat().st_size > 10_000
    text = (tmp_path / "benchmark.md").read_text()
    if kind == "cpu":
        assert "a queue of K =" in text and len(content["more"]["processes on paper"]["data"]) == 3
    else:
        # Of the CPU with itself, if without a GPU.
        assert max(content["more"]["equality"]["data"].values()) < 1e-3
        assert (
            len(content["more"]["images"]["data"]) >= 3
            and (tmp_path / "profile.txt").stat().st_size > 1000
        )
    assert "see " in capsys.readouterr().out
