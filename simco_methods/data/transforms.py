"""Augmented views and the plain view for validation, of torchvision's parts on Pillow images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from PIL import Image, ImageFilter
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode

from simco_methods.data.datasets import DATASETS


class GaussianBlur:
    """Pillow's Gaussian blur with a radius drawn from [0.1, 2.0], as in SimCLR."""

    def __call__(self, image: Image.Image) -> Image.Image:
        radius = float(torch.empty(()).uniform_(0.1, 2.0))
        return image.filter(ImageFilter.GaussianBlur(radius=radius))


def view_transform(dataset: str, cfg: DictConfig) -> T.Compose:
    """One augmented view, from an entry of ``augmentations``; solo-learn's keys and order.

    Args:
        dataset: name, for its mean and standard deviation.
        cfg: ``crop_size`` and, each left out or with probability 0 for none, ``rrc``,
            ``color_jitter``, ``grayscale``, ``gaussian_blur``, ``solarization``, ``equalization``,
            ``horizontal_flip``; ``mean`` and ``std`` for custom images.
    """

    def get(key: str, default: Any = 0.0) -> Any:
        return OmegaConf.select(cfg, key, default=default)

    if get("rrc.enabled", False):
        crop = T.RandomResizedCrop(
            cfg.crop_size,
            scale=(cfg.rrc.crop_min_scale, cfg.rrc.crop_max_scale),
            interpolation=InterpolationMode.BICUBIC,
        )
    else:
        size = (cfg.crop_size, cfg.crop_size)
        crop = T.Resize(size, interpolation=InterpolationMode.BICUBIC)
    steps: list[Any] = [crop]
    if get("color_jitter.prob"):
        amounts = (
            get(f"color_jitter.{k}") for k in ("brightness", "contrast", "saturation", "hue")
        )
        steps.append(T.RandomApply([T.ColorJitter(*amounts)], p=cfg.color_jitter.prob))
    if get("grayscale.prob"):
        steps.append(T.RandomGrayscale(p=cfg.grayscale.prob))
    if get("gaussian_blur.prob"):
        steps.append(T.RandomApply([GaussianBlur()], p=cfg.gaussian_blur.prob))
    if get("solarization.prob"):
        steps.append(T.RandomSolarize(threshold=128, p=cfg.solarization.prob))
    if get("equalization.prob"):
        steps.append(T.RandomEqualize(p=cfg.equalization.prob))
    if get("horizontal_flip.prob"):
        steps.append(T.RandomHorizontalFlip(p=cfg.horizontal_flip.prob))
    return T.Compose([*steps, T.ToTensor(), _normalize(dataset, cfg)])


def view_transforms(dataset: str, views: Sequence[DictConfig]) -> list[T.Compose]:
    """One transform a view: each entry of ``augmentations`` as often as its ``num_crops``."""
    return [view_transform(dataset, view) for view in views for _ in range(view.num_crops)]


def eval_transform(dataset: str, cfg: DictConfig) -> T.Compose:
    """The whole image at the training crop's size; larger photographs resized by 8/7 and cropped.

    Args:
        dataset: name.
        cfg: the first entry of ``augmentations``, for ``crop_size``, ``mean`` and ``std``.
    """
    size = cfg.crop_size
    bicubic = InterpolationMode.BICUBIC
    if DATASETS[dataset].square or size < 96:
        steps = [T.Resize(size, interpolation=bicubic), T.CenterCrop(size)]
    else:
        steps = [T.Resize(size * 8 // 7, interpolation=bicubic), T.CenterCrop(size)]
    return T.Compose([*steps, T.ToTensor(), _normalize(dataset, cfg)])


def _normalize(dataset: str, cfg: DictConfig) -> T.Normalize:
    info = DATASETS[dataset]
    # A mean or std in the config is meant for images that the table does not know.
    mean, std = info.mean, info.std
    if info.num_classes is None:
        mean, std = cfg.get("mean") or mean, cfg.get("std") or std
    return T.Normalize(mean=list(mean), std=list(std))
