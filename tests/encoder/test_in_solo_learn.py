"""Exported encoders in solo-learn's unmodified main_linear.py and main_knn.py."""

import json
import shlex

import pytest
import torch
import torchvision

from simco_methods import load_encoder
from tests.encoder.conftest import export
from tests.test_solo_scripts import (  # noqa: F401
    QUICK,
    cifar,
    data,
    images,
    only,
    script,
    site,
)
from tests.test_solo_scripts import pytestmark as needs_solo_learn

pytestmark = needs_solo_learn


def evaluate(source, dataset, folders, script, cwd):  # noqa: F811
    """Both scripts on what was exported from ``source``, which has to arrive there."""
    encoder = load_encoder(source / "solo-learn")
    train, test = folders
    linear = load_lines(source)[0].replace("cifar10/linear", f"{dataset}/linear")
    arguments = shlex.split(linear.removeprefix("python main_linear.py "))
    settings = [f"data.train_path={train}", f"data.val_path={test}", *QUICK, "max_epochs=1"]
    script("main_linear.py", *arguments, *settings, "+limit_train_batches=2", cwd=cwd)
    trained = torch.load(only((cwd / "trained_models").rglob("*.ckpt")), weights_only=True)
    frozen = {k: v for k, v in trained["state_dict"].items() if k.startswith("backbone.")}
    expected = encoder.backbone.state_dict()
    assert {key.removeprefix("backbone.") for key in frozen} == set(expected)
    assert all(torch.equal(frozen[f"backbone.{key}"], value) for key, value in expected.items())
    return script(
        *("main_knn.py", "--dataset", dataset, "--feature_type", "backbone"),
        *("--pretrained_checkpoint_dir", source / "solo-learn", "--batch_size", 8),
        *("--train_data_path", train, "--val_data_path", test, "--num_workers", 0),
        *("--k", 1, "--temperature", 0.1, "--distance_function", "euclidean"),
        cwd=cwd,
    )


def load_lines(folder):
    card = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    return card["files"]["solo-learn/encoder.ckpt"]["load"]


def test_of_an_exported_file(digits_run, script, cifar, tmp_path):  # noqa: F811
    weights = export(digits_run, f"out={tmp_path / 'weights.safetensors'}") / "weights.safetensors"
    folder = export(weights, f"out={tmp_path}", "format=solo-learn")
    output = evaluate(folder, "cifar10", (cifar, cifar), script, tmp_path)
    assert "Result: acc@1=100.0" in output  # each test image is its own nearest neighbour


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["torchvision", "small"])
def test_of_torchvision_s_weights(stem, script, images, cifar, tmp_path):  # noqa: F811
    net = torchvision.models.resnet18()
    name = "resnet18"
    if stem == "small":
        net.conv1, name = torch.nn.Conv2d(3, 64, 3, padding=2, bias=False), "resnet18_small"
    torch.save(net.state_dict(), tmp_path / "net.pth")
    arguments = [f"backbone.name={name}", f"out={tmp_path}", "format=solo-learn"]
    folder = export(tmp_path / "net.pth", *arguments)
    dataset, folders = "custom", (images / "train", images / "train")
    if stem == "small":
        dataset, folders = "cifar10", (cifar, cifar)
    output = evaluate(folder, dataset, folders, script, tmp_path)
    assert "Result: acc@1=100.0" in output
