"""A tiny encoder and a few images, which the tests of trained classifiers start from."""

import numpy as np
import torch

from simco_methods.data import ImageSet
from simco_methods.data.transforms import Preprocessing
from simco_methods.encoder import Card, Encoder
from simco_methods.encoder.loading import build
from simco_methods.evaluation import linear_training
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.sides import Sides
from tests.helpers import TINY_RESNET

CLASSES = 4


def tiny_encoder(backbone=TINY_RESNET, size=16):
    seen = Preprocessing(size, size, (0.5, 0.4, 0.3), (0.2, 0.3, 0.2))
    torch.manual_seed(0)
    card = Card(backbone["name"], backbone.get("kwargs", {}), False, seen)
    encoder = Encoder(build(card), card).eval()
    card.features = encoder(torch.zeros(1, 3, size, size)).shape[1]
    return encoder


def images(count, seed, classes=CLASSES, size=16):
    """Images whose classes differ a little, as many of each."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    pixels = random.integers(0, 200, (count, size, size, 3))
    pixels[..., 0] += 14 * labels[:, None, None]
    names = [f"class {i}" for i in range(classes)]
    return ImageSet(pixels.astype(np.uint8), labels.astype(np.int64), names)


def sides(train=44, test=30, classes=CLASSES):
    return Sides(images(train, 1, classes), images(test, 2, classes), "custom")


def settings(**changes):
    defaults = {"epochs": 3, "batch_size": 16, "num_workers": 0, "lr": [0.3], "seed": 3}
    return LinearSettings(**{**defaults, **changes})


def save_always(monkeypatch):
    """The state of a training is saved after every step."""
    monkeypatch.setattr(linear_training, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(linear_training, "_SAVING_SHARE", float("inf"))


def interrupted(kind, at, monkeypatch):
    """Makes a learner's step number ``at`` a Ctrl-C, once."""
    step = kind.step

    def stop(self, number, *batch):
        if number == at:
            monkeypatch.setattr(kind, "step", step)
            raise KeyboardInterrupt
        return step(self, number, *batch)

    monkeypatch.setattr(kind, "step", stop)
