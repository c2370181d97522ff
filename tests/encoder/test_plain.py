"""Exported weights in plain torchvision and timm, by the very lines that the card gives."""

import json

import numpy as np
import pytest
import torch

from simco_methods.encoder.naming import plain_lines
from simco_methods.encoder.writing import export_encoder
from simco_methods.host import HOST
from tests.encoder.conftest import encoder_of, pictures

SLOW = pytest.mark.slow
VIT = {"img_size": 32, "patch_size": 8}
SWIN = {"img_size": 32, "window_size": 4}
BOTH = ("torchvision", "timm")


def cases():
    for naming in BOTH:
        yield pytest.param("resnet18", {}, False, 32, naming)
        yield pytest.param("resnet18", {}, True, 16, naming, marks=[SLOW] * (naming == "timm"))
        yield pytest.param("resnet18_small", {}, False, 16, naming, marks=SLOW)
        yield pytest.param("resnet18_small", {"stem_padding": 1}, False, 16, naming, marks=SLOW)
        for stem in (False, True):
            yield pytest.param("resnet50", {}, stem, 32, naming, marks=SLOW)
        yield pytest.param("resnet50_small", {"stem_padding": 0}, False, 16, naming, marks=SLOW)
        yield pytest.param("resnet34", {}, False, 32, naming, marks=SLOW)
    yield pytest.param("torchvision.regnet_y_400mf", {}, False, 32, "torchvision")
    yield pytest.param(
        "torchvision.vit_b_16", {"image_size": 32}, False, 32, "torchvision", marks=SLOW
    )
    yield pytest.param("vit_tiny", VIT, False, 32, "timm")
    yield pytest.param("vit_small", VIT, False, 32, "timm", marks=SLOW)
    yield pytest.param("swin_tiny", SWIN, False, 32, "timm", marks=SLOW)
    yield pytest.param("convnext_tiny", {}, False, 32, "timm", marks=SLOW)
    yield pytest.param("micro_resnet", {}, False, 16, "timm")
    yield pytest.param("micro_resnet", {"channels": [8, 8, 16, 16]}, False, 16, "timm")
    yield pytest.param("vit_tiny_patch16_224.augreg_in21k", VIT, False, 32, "timm", marks=SLOW)


@pytest.mark.parametrize("name, kwargs, stem, size, naming", list(cases()))
def test_strictly_with_the_same_features(name, kwargs, stem, size, naming, tmp_path, monkeypatch):
    encoder = encoder_of(name, kwargs, stem, size)
    export_encoder(encoder, tmp_path, "encoder", ["safetensors", "pth"], naming)
    card = json.loads((tmp_path / "encoder.json").read_text())
    monkeypatch.chdir(tmp_path)
    images = pictures(2, size + 9)
    expected = encoder.transform(images)
    assert np.abs(expected).max() > 0.01 and card["naming"] == naming
    for file in ("encoder.safetensors", "encoder.pth"):
        lines = card["files"][file]["load"] + card["transform"]
        assert not any("simco" in line for line in lines)
        made = {}
        exec("\n".join(lines), made)
        assert not made["model"].training
        with torch.no_grad():
            found = made["model"](torch.stack([made["transform"](image) for image in images]))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "name, kwargs, naming, message",
    [
        (
            "micro_resnet",
            {},
            "torchvision",
            "micro_resnet is made of timm's parts; set naming=timm",
        ),
        ("vit_tiny", VIT, "torchvision", "torchvision has no vit_tiny; set naming=timm"),
        ("torchvision.mobilenet_v3_small", {}, "timm", "set naming=torchvision"),
        ("efficientnet_b0", {}, "torchvision", "has other names for its weights"),
        (
            "resnet18",
            {"norm_layer": None, "zero_init_residual": True},
            "timm",
            "are torchvision's; set naming=torchvision",
        ),
    ],
)
def test_a_naming_that_the_network_is_not_in(name, kwargs, naming, message):
    with pytest.raises(ValueError, match=f"naming={naming}: .*{message}"):
        plain_lines(encoder_of(name, kwargs, size=32), naming)


def test_a_network_that_is_another_one_there():
    encoder = encoder_of()
    encoder.backbone.layer1 = torch.nn.Identity()
    with pytest.raises(ValueError, match="naming=timm: timm's micro_resnet is another network"):
        plain_lines(encoder, "timm")


def test_arguments_of_a_card_are_no_code():
    encoder = encoder_of()
    encoder.card.kwargs["x=print('run'), y"] = 1
    with pytest.raises(ValueError, match="is no name of an argument"):
        plain_lines(encoder, "timm")


@pytest.mark.solo_learn
@pytest.mark.skipif(HOST != "solo-learn", reason="of the solo-learn host")
@pytest.mark.parametrize("name", ["poolformer_s12", "wide_resnet28w2"])
def test_solo_learn_s_own_networks_are_in_neither(name):
    encoder = encoder_of(name, {}, size=32)
    for naming in BOTH:
        with pytest.raises(ValueError, match=f"naming={naming}: "):
            plain_lines(encoder, naming)
