"""solo-learn's backbone names, from torchvision and timm, with the same state-dict names.

The poolformers are the exception: timm rewrote the model, so its checkpoints do not move between
hosts. ``wide_resnet28w2`` and ``wide_resnet28w8`` are in neither library and need solo-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import timm
import torchvision
from torch import nn


def _torchvision(name: str, method: str | None = None, **kwargs) -> nn.Module:
    return getattr(torchvision.models, name)(**kwargs)


def _timm(name: str, method: str | None = None, **kwargs) -> nn.Module:
    # Not by timm's registry: solo-learn, once imported, puts models of its own under these names.
    return getattr(timm.models, name)(num_classes=0, **kwargs)


TIMM_NAMES = {
    "vit_tiny": "vit_tiny_patch16_224",
    "vit_small": "vit_small_patch16_224",
    "vit_base": "vit_base_patch16_224",
    "vit_large": "vit_large_patch16_224",
    "swin_tiny": "swin_tiny_patch4_window7_224",
    "swin_small": "swin_small_patch4_window7_224",
    "swin_base": "swin_base_patch4_window7_224",
    "swin_large": "swin_large_patch4_window7_224",
    "convnext_tiny": "convnext_tiny",
    "convnext_small": "convnext_small",
    "convnext_base": "convnext_base",
    "convnext_large": "convnext_large",
    "poolformer_s12": "poolformer_s12",
    "poolformer_s24": "poolformer_s24",
    "poolformer_s36": "poolformer_s36",
    "poolformer_m36": "poolformer_m36",
    "poolformer_m48": "poolformer_m48",
}

# name -> constructor(method, **kwargs)
BACKBONES: dict[str, Callable[..., nn.Module]] = {
    **{name: partial(_torchvision, name) for name in ("resnet18", "resnet50")},
    **{name: partial(_timm, timm_name) for name, timm_name in TIMM_NAMES.items()},
}


def build_backbone(
    table: Mapping[str, Callable[..., nn.Module]],
    name: str,
    kwargs: Mapping[str, Any],
    dataset: str,
    method: str | None = None,
) -> nn.Module:
    """A backbone without its classifier, with the stem that solo-learn gives it on CIFAR.

    Args:
        table: name to constructor(method, **kwargs).
        name: which of them.
        kwargs: of the constructor.
        dataset: name of the data set.
        method: name of the method.

    Raises:
        ValueError: a name that the table does not have.
    """
    if name not in table:
        raise ValueError(f"backbone.name={name!r} is none of {', '.join(table)}")
    backbone = table[name](method, **kwargs)
    if name.startswith("resnet"):
        backbone.fc = nn.Identity()
        if dataset in ("cifar10", "cifar100"):
            backbone.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=2, bias=False)
            backbone.maxpool = nn.Identity()
    return backbone


def features_dim(name: str, backbone: nn.Module) -> int:
    """Width of a backbone's features, read where solo-learn reads it."""
    return backbone.inplanes if name.startswith("resnet") else backbone.num_features
