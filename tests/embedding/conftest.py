"""A small encoder, and folders of small images."""

import numpy as np
import pytest
import torch
from PIL import Image

from simco_methods.embedding.settings import EmbedSettings
from simco_methods.encoder.loading import build
from simco_methods.settings import parse_settings
from tests.helpers import TINY_RESNET

SMALL = [
    "backbone.name=micro_resnet",
    "backbone.kwargs.channels=[8,8,16,16]",
    "size=16",
    "num_workers=0",
    "batch_size=4",
    "device=cpu",
]


def parsed(*arguments):
    return parse_settings("simco-embed", EmbedSettings, [*SMALL, *arguments])


def draw(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((30, 24)).save(path, format="PNG")


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """``weights(seed)``: the file of an encoder's state dict."""
    folder = tmp_path_factory.mktemp("weights")

    def file(seed=0):
        path = folder / f"net{seed}.pth"
        if not path.is_file():
            torch.manual_seed(seed)
            torch.save(build(card()).state_dict(), path)
        return path

    return file


def card():
    from simco_methods.data.transforms import Preprocessing
    from simco_methods.encoder import Card

    seen = Preprocessing(16, 16, (0.5,) * 3, (0.5,) * 3)
    return Card(TINY_RESNET["name"], dict(TINY_RESNET["kwargs"]), False, seen)


@pytest.fixture
def photos(tmp_path):
    """Ten images, some in folders."""
    folder = tmp_path / "photos"
    for number, name in enumerate(["a/1", "a/2", "a/b/c/3", "b/1", "b/2", "b/10", "c", "d", "e"]):
        draw(folder / f"{name}.png", number)
    draw(folder / ".hidden" / "x.png", 99)
    draw(folder / "f.png", 0)  # as a/1.png
    (folder / "notes.txt").write_text("no image")
    return folder
