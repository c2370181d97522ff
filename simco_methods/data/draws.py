"""What is drawn for a view: where it is cropped, how its colours change, whether it is mirrored.

A draw is a function of (seed, epoch, image, view) alone. Both loaders read the same draws, one with
Pillow, one for whole batches of tensors, so that they make the same views. The distributions are
those of torchvision's transforms and of Pillow's blur in SimCLR's range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from simco_methods.options import INTERPOLATIONS
from simco_methods.seeds import derived_seed

# What ColorJitter changes, in its numbering of the order; the first three are blends.
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_LOG_RATIO = math.log(3 / 4), math.log(4 / 3)  # of a crop's width to its height, torchvision's
_CROP_ATTEMPTS = 10  # torchvision's
_BLUR_RADIUS = 0.1, 2.0

# Places of the uniform numbers of a view.
_AREA = slice(0, _CROP_ATTEMPTS)
_RATIO = slice(_CROP_ATTEMPTS, 2 * _CROP_ATTEMPTS)
_TOP, _LEFT, _JITTER = 20, 21, 22
_ORDER, _FACTORS = slice(23, 27), slice(27, 31)
_GRAY, _BLUR, _RADIUS, _SOLARIZE, _EQUALIZE, _FLIP = range(31, 37)
_COUNT = 37


@dataclass(frozen=True)
class ViewSettings:
    """An entry of ``augmentations``, with solo-learn's keys, as numbers.

    Attributes:
        crop_size: side of a view in pixels.
        scale: smallest and largest share of the image's area that a crop takes, None for the whole
            image.
        interpolation: "bicubic" or "bilinear", with antialiasing as in Pillow.
        amounts: of brightness, contrast, saturation and hue, 0 for none.
        jitter, gray, blur, solarize, equalize, flip: probabilities.
    """

    crop_size: int
    scale: tuple[float, float] | None
    interpolation: str
    amounts: tuple[float, float, float, float]
    jitter: float
    gray: float
    blur: float
    solarize: float
    equalize: float
    flip: float

    @classmethod
    def from_config(cls, cfg: DictConfig) -> ViewSettings:
        def get(key: str, default: Any = 0.0) -> Any:
            return OmegaConf.select(cfg, key, default=default)

        cropped = get("rrc.enabled", False)
        names = ("brightness", "contrast", "saturation", "hue")
        return cls(
            crop_size=cfg.crop_size,
            scale=(cfg.rrc.crop_min_scale, cfg.rrc.crop_max_scale) if cropped else None,
            interpolation=get("rrc.interpolation", INTERPOLATIONS[0]),
            amounts=tuple(float(get(f"color_jitter.{name}")) for name in names),
            jitter=get("color_jitter.prob"),
            gray=get("grayscale.prob"),
            blur=get("gaussian_blur.prob"),
            solarize=get("solarization.prob"),
            equalize=get("equalization.prob"),
            flip=get("horizontal_flip.prob"),
        )


@dataclass(frozen=True)
class ViewDraws:
    """The draws of N views.

    Attributes:
        box: (N, 4) top, left, height, width of the crop in pixels.
        jittered: (N,) whether the colours are jittered.
        order: (N, 4) what is changed first, second, ...
        factors: (N, 4) of brightness, contrast and saturation, 1 for no change, and the shift of
            the hue in turns of the colour circle.
        gray, solarized, equalized, flipped: (N,) bool.
        radius: (N,) standard deviation of the blur in pixels, 0 for none.
    """

    box: np.ndarray
    jittered: np.ndarray
    order: np.ndarray
    factors: np.ndarray
    gray: np.ndarray
    radius: np.ndarray
    solarized: np.ndarray
    equalized: np.ndarray
    flipped: np.ndarray

    def __len__(self) -> int:
        return len(self.box)

    def rows(self, rows: Any) -> ViewDraws:
        """Those at ``rows``, an index of the first dimension."""
        return ViewDraws(*(getattr(self, field.name)[rows] for field in fields(self)))


def draw_views(
    settings: ViewSettings,
    sizes: np.ndarray,
    seed: int,
    epochs: Sequence[int] | np.ndarray,
    images: Sequence[int] | np.ndarray,
    views: Sequence[int] | np.ndarray,
) -> ViewDraws:
    """The draws of N views.

    Args:
        settings: of the views.
        sizes: (N, 2) height and width of the images.
        seed, epochs, images, views: what the draws are a function of, the last three (N,).
    """
    u = _uniforms(seed, np.asarray(epochs), np.asarray(images), np.asarray(views))
    low = np.maximum(0.0, 1 - np.array(settings.amounts))
    high = 1 + np.array(settings.amounts)
    low[HUE], high[HUE] = -settings.amounts[HUE], settings.amounts[HUE]
    radius = _BLUR_RADIUS[0] + (_BLUR_RADIUS[1] - _BLUR_RADIUS[0]) * u[:, _RADIUS]
    return ViewDraws(
        box=_boxes(settings.scale, np.asarray(sizes), u),
        jittered=u[:, _JITTER] < settings.jitter,
        order=u[:, _ORDER].argsort(axis=1),
        factors=low + (high - low) * u[:, _FACTORS],
        gray=u[:, _GRAY] < settings.gray,
        radius=np.where(u[:, _BLUR] < settings.blur, radius, 0.0),
        solarized=u[:, _SOLARIZE] < settings.solarize,
        equalized=u[:, _EQUALIZE] < settings.equalize,
        flipped=u[:, _FLIP] < settings.flip,
    )


def _uniforms(seed: int, epochs: np.ndarray, images: np.ndarray, views: np.ndarray) -> np.ndarray:
    """(N, _COUNT) numbers in [0, 1): SplitMix64 (Steele et al., OOPSLA 2014) read by position."""
    found, where = np.unique(np.stack([epochs, views]), axis=1, return_inverse=True)
    starts = [derived_seed(seed, *pair) for pair in found.T.tolist()]
    start = np.array(starts, dtype=np.uint64)[where.ravel()]
    place = images.astype(np.uint64)[:, None] * np.uint64(_COUNT) + np.arange(
        1, _COUNT + 1, dtype=np.uint64
    )
    z = start[:, None] + place * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)) * 2.0**-53


def _boxes(scale: tuple[float, float] | None, sizes: np.ndarray, u: np.ndarray) -> np.ndarray:
    """torchvision's RandomResizedCrop.get_params for N images; the whole images without scale."""
    height, width = sizes.T
    if scale is None:
        nothing = np.zeros_like(height)
        return np.stack([nothing, nothing, height, width], axis=1)
    area = (height * width)[:, None] * (scale[0] + (scale[1] - scale[0]) * u[:, _AREA])
    ratio = np.exp(_LOG_RATIO[0] + (_LOG_RATIO[1] - _LOG_RATIO[0]) * u[:, _RATIO])
    w, h = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (w > 0) & (w <= width[:, None]) & (h > 0) & (h <= height[:, None])
    found, first = fits.any(axis=1), (np.arange(len(sizes)), fits.argmax(axis=1))
    # The central crop that is left where no attempt fits: the image, cut to the range of ratios.
    narrow, wide = math.exp(_LOG_RATIO[0]), math.exp(_LOG_RATIO[1])
    h = np.where(found, h[first], np.minimum(height, np.rint(width / narrow)))
    w = np.where(found, w[first], np.minimum(width, np.rint(height * wide)))
    top, left = u[:, _TOP] * (height - h + 1), u[:, _LEFT] * (width - w + 1)
    top = np.where(found, top, (height - h) // 2)
    left = np.where(found, left, (width - w) // 2)
    return np.stack([top, left, h, w], axis=1).astype(np.int64)
