"""Encoders without a training, and the fixture of one with."""

import numpy as np
import torch
from PIL import Image

from simco_methods import export as command
from simco_methods.data.transforms import Preprocessing
from simco_methods.encoder import Card, Encoder
from simco_methods.encoder.export_settings import ExportSettings
from simco_methods.encoder.loading import build
from simco_methods.settings import parse_settings
from tests.evaluation.conftest import digits_run  # noqa: F401
from tests.helpers import TINY_RESNET

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)


def encoder_of(
    name=TINY_RESNET["name"], kwargs=TINY_RESNET["kwargs"], small_stem=False, size=16, seed=0
):
    """An encoder whose running statistics say something."""
    torch.manual_seed(seed)
    card = Card(name, dict(kwargs), small_stem, Preprocessing(size, size, MEAN, STD))
    net = build(card)
    with torch.no_grad():
        card.features = net(torch.randn(4, 3, size, size)).shape[1]
    return Encoder(net, card).eval()


def export(source, *arguments):
    """``simco-export SOURCE ARGUMENTS``: the folder."""
    return command.export(source, parse_settings("simco-export", ExportSettings, arguments))


def pictures(count, size=20):
    """Pillow images of two different sides."""
    generator = np.random.default_rng(0)
    arrays = generator.integers(0, 255, (count, size, size + 5, 3), dtype=np.uint8)
    return [Image.fromarray(array) for array in arrays]


def same_weights(one, other):
    """Whether two networks have bit-equal weights."""
    one, other = one.state_dict(), other.state_dict()
    return set(one) == set(other) and all(torch.equal(one[key], other[key]) for key in one)
