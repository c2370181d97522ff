"""Augmented and plain views of Pillow images, by torchvision's functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from omegaconf import DictConfig
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from simco_methods.data.datasets import DATASETS
from simco_methods.data.draws import BRIGHTNESS, CONTRAST, HUE, SATURATION, ViewDraws, ViewSettings

SOLARIZE_FROM = 128
_BICUBIC = InterpolationMode.BICUBIC
_COLOUR = {
    BRIGHTNESS: F.adjust_brightness,
    CONTRAST: F.adjust_contrast,
    SATURATION: F.adjust_saturation,
    HUE: F.adjust_hue,
}


def pillow_view(image: Image.Image, settings: ViewSettings, draws: ViewDraws) -> Image.Image:
    """One augmented view, in solo-learn's order of steps.

    Args:
        image: RGB.
        settings: of the view.
        draws: of this image, a single row (see :meth:`ViewDraws.rows`).
    """
    size = settings.crop_size
    box = map(int, draws.box)
    image = F.resized_crop(image, *box, [size, size], InterpolationMode(settings.interpolation))
    if draws.jittered:
        for change in draws.order:
            if settings.amounts[change]:
                image = _COLOUR[int(change)](image, float(draws.factors[change]))
    if draws.gray:
        image = F.rgb_to_grayscale(image, num_output_channels=3)
    if draws.radius:
        image = image.filter(ImageFilter.GaussianBlur(radius=float(draws.radius)))
    if draws.solarized:
        image = F.solarize(image, SOLARIZE_FROM)
    if draws.equalized:
        image = F.equalize(image)
    return F.hflip(image) if draws.flipped else image


def plain_view(image: Image.Image, dataset: str, size: int) -> Image.Image:
    """The whole image at the training crop's size; larger photographs resized by 8/7 and cropped.

    Args:
        image: RGB.
        dataset: name.
        size: side of a training crop.
    """
    whole = DATASETS[dataset].square or size < 96
    image = F.resize(image, size if whole else size * 8 // 7, _BICUBIC)
    return F.center_crop(image, [size, size])


class Normalization:
    """Pixels from 0 to 255 to a data set's normalised tensors.

    Args:
        dataset: name, for its mean and standard deviation.
        cfg: an entry of ``augmentations``, whose ``mean`` and ``std`` hold for custom images.
    """

    def __init__(self, dataset: str, cfg: DictConfig):
        info = DATASETS[dataset]
        # A mean or std in the config is meant for images that the table does not know.
        mean, std = info.mean, info.std
        if info.num_classes is None:
            mean, std = cfg.get("mean") or mean, cfg.get("std") or std
        self.mean: Sequence[float] = list(mean)
        self.std: Sequence[float] = list(std)

    def __call__(self, image: Image.Image) -> Tensor:
        """An RGB image to (3, H, W)."""
        return F.normalize(F.to_tensor(image), self.mean, self.std)

    def batch(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) of uint8 to the same in float32, each as by a call."""
        return F.normalize(pixels.float().div_(255), self.mean, self.std, inplace=True)

    def inverse(self, view: Tensor) -> Image.Image:
        """What a person sees of a view, (3, H, W)."""
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (self.mean, self.std))
        pixels = ((view.cpu() * std + mean).clamp(0, 1) * 255).round().byte()
        return Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0)))


def per_view(views: Sequence[DictConfig]) -> list[DictConfig]:
    """The entries of ``augmentations``, each as often as its ``num_crops``."""
    return [view for view in views for _ in range(view.num_crops)]
