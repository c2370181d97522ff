"""Augmented and plain views of Pillow images, by torchvision's functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Preprocessing:
    """What becomes of a whole image on its way into a network.

    Attributes:
        size: side of what the network sees.
        resize: what the shorter side of the image becomes, before the centre is cropped.
        mean, std: of the channels, in [0, 1].
    """

    size: int
    resize: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, dataset: str, entry: Mapping[str, Any]) -> Preprocessing:
        """As an entry of ``augmentations`` has it.

        Images of a data set whose images are square, and all below 96 pixels, are taken whole;
        photographs are resized to 8/7 of the crop first, as is usual on ImageNet. For custom images
        the entry's ``mean``, ``std`` and ``resize`` hold, where it has them.

        Args:
            dataset: name, for its mean and standard deviation.
            entry: with ``crop_size``, the side of a training crop.
        """
        info, size = DATASETS[dataset], entry["crop_size"]
        whole = info.square or size < 96
        resize, mean, std = size if whole else size * 8 // 7, info.mean, info.std
        # In the config they are meant for images that the table does not know.
        if info.num_classes is None:
            mean, std = entry.get("mean") or mean, entry.get("std") or std
            resize = entry.get("resize") or resize
        return cls(size, resize, tuple(mean), tuple(std))

    def view(self, image: Image.Image) -> Image.Image:
        """An RGB image to what the network sees of it."""
        image = F.resize(image, self.resize, _BICUBIC)
        return F.center_crop(image, [self.size, self.size])

    def normalize(self, image: Image.Image) -> Tensor:
        """An RGB image, as it is, to (3, H, W)."""
        return F.normalize(F.to_tensor(image), self.mean, self.std)

    def __call__(self, image: Image.Image) -> Tensor:
        """An RGB image to a network's input, (3, size, size)."""
        return self.normalize(self.view(image))

    def batch(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) of uint8 to the same in float32, each as by :meth:`normalize`."""
        return F.normalize(pixels.float().div_(255), self.mean, self.std, inplace=True)

    def inverse(self, view: Tensor) -> Image.Image:
        """What a person sees of an input, (3, H, W)."""
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (self.mean, self.std))
        pixels = ((view.cpu() * std + mean).clamp(0, 1) * 255).round().byte()
        return Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0)))


def per_view(views: Sequence[DictConfig]) -> list[DictConfig]:
    """The entries of ``augmentations``, each as often as its ``num_crops``."""
    return [view for view in views for _ in range(view.num_crops)]
