"""Draws: their distributions are those of torchvision's transforms."""

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from scipy.stats import chisquare, ks_2samp, kstest
from torchvision import transforms as T

from simco_methods.data.draws import BRIGHTNESS, HUE, ViewSettings, draw_views
from tests.helpers import compose_config

COUNT = 4000
VIEW = OmegaConf.merge(
    compose_config("cifar10/simco").augmentations[0],
    {
        "gaussian_blur": {"prob": 0.3},
        "solarization": {"prob": 0.1},
        "equalization": {"prob": 0.6},
    },
)
SETTINGS = ViewSettings.from_config(VIEW)


def draws(size=(32, 32), settings=SETTINGS, images=None, epoch=0, view=0, seed=5):
    images = np.arange(COUNT) if images is None else images
    ones = np.ones(len(images), dtype=np.int64)
    sizes = np.tile(size, (len(images), 1))
    return draw_views(settings, sizes, seed, epoch * ones, images, view * ones)


@pytest.mark.parametrize("size", [(32, 32), (96, 60), (8, 300), (300, 8)])
@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.5, 1.0)])
def test_crops_are_torchvision_s(size, scale):
    settings = ViewSettings.from_config(
        OmegaConf.merge(VIEW, {"rrc": {"crop_min_scale": scale[0], "crop_max_scale": scale[1]}})
    )
    torch.manual_seed(0)
    image = torch.zeros(3, *size)
    expected = [T.RandomResizedCrop.get_params(image, scale, (3 / 4, 4 / 3)) for _ in range(COUNT)]
    found = draws(size, settings).box
    for column, theirs in zip(found.T, np.array(expected).T, strict=True):
        assert ks_2samp(column, theirs).pvalue > 1e-3
    assert (found[:, :2] >= 0).all() and (found[:, :2] + found[:, 2:] <= size).all()


def test_jitter_is_torchvision_s():
    torch.manual_seed(0)
    jitter = T.ColorJitter(0.4, 0.4, 0.4, 0.1)
    ranges = jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue
    orders, *factors = zip(*(jitter.get_params(*ranges) for _ in range(COUNT)), strict=True)
    found = draws()
    for column, theirs in zip(found.factors.T, factors, strict=True):
        assert ks_2samp(column, np.array(theirs)).pvalue > 1e-3
    places = [(order @ [64, 16, 4, 1]) for order in (found.order, torch.stack(orders).numpy())]
    counts = [np.unique(place, return_counts=True)[1] for place in places]
    assert all(len(count) == 24 and chisquare(count).pvalue > 1e-3 for count in counts)


@pytest.mark.parametrize(
    "name, rate",
    [
        ("jittered", 0.8),
        ("gray", 0.2),
        ("flipped", 0.5),
        ("solarized", 0.1),
        ("equalized", 0.6),
        ("radius", 0.3),
    ],
)
def test_rates_are_the_configured_ones(name, rate):
    happened = getattr(draws(), name) > 0
    assert abs(happened.mean() - rate) < 3 * (rate * (1 - rate) / COUNT) ** 0.5


def test_blur_s_radius_is_uniform():
    radius = draws().radius
    assert kstest(radius[radius > 0], "uniform", (0.1, 1.9)).pvalue > 1e-3


def test_nothing_is_correlated():
    """Not what is drawn for one view, nor one draw of neighbouring images, views or epochs."""
    one = draws()
    for other in (draws(view=1), draws(epoch=1), draws(images=np.arange(COUNT) + 1), draws(seed=6)):
        for column in range(4):
            pair = one.factors[:, column], other.factors[:, column]
            assert abs(np.corrcoef(*pair)[0, 1]) < 4 / COUNT**0.5
    columns = np.column_stack([one.factors, one.box, one.gray, one.flipped, one.jittered])
    correlation = np.corrcoef(columns.T)
    np.fill_diagonal(correlation, 0)
    # The place of a crop depends on its size, and its height on its width.
    correlation[4:8, 4:8] = 0
    assert np.abs(correlation).max() < 5 / COUNT**0.5


def test_a_draw_is_a_function_of_its_image():
    whole, part = draws(), draws(images=np.array([7, 3]))
    for row, image in enumerate((7, 3)):
        assert (whole.box[image] == part.box[row]).all()
        assert (whole.factors[image] == part.factors[row]).all()


def test_what_has_no_amount_or_no_crop_does_nothing():
    settings = ViewSettings.from_config(
        OmegaConf.merge(VIEW, {"rrc": {"enabled": False}, "color_jitter": {"hue": 0.0}})
    )
    found = draws((20, 30), settings)
    assert (found.box == [0, 0, 20, 30]).all() and (found.factors[:, HUE] == 0).all()
    assert found.factors[:, BRIGHTNESS].std() > 0.1
