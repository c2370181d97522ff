"""Encoders from run folders, checkpoints, exported files and state dicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from omegaconf import OmegaConf
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import nn

from simco_methods.config.walk import reason
from simco_methods.data.datasets import DATASETS
from simco_methods.data.transforms import Preprocessing
from simco_methods.encoder.card import Card
from simco_methods.encoder.encoder import Encoder
from simco_methods.encoder.matching import load_backbone
from simco_methods.encoder.sources import Source, read_source
from simco_methods.host import HOST, BaseMethod
from simco_methods.host.builtin.backbones import build_backbone
from simco_methods.machine import find_device
from simco_methods.quiet import quiet

_SMALL = ("cifar10", "cifar100")  # on which solo-learn gives ResNets a stem for small images
_OTHER_VITS = ("mae", "mocov3")  # methods for which solo-learn has ViTs of its own
_DOWNLOADS = ("pretrained", "weights")  # arguments that bring weights, which are the file's here
TORCHVISION = "torchvision."  # before a name: the network is torchvision's of that name


def load_encoder(
    source: str | Path,
    *,
    backbone: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    prefix: str | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    trusted: bool = False,
    device: str | torch.device = "cpu",
) -> Encoder:
    """An encoder with its preprocessing, in evaluation mode.

    Args:
        source: a run's folder, or one that solo-learn's ``main_pretrain.py`` wrote; a checkpoint of
            either; a file of ``simco-export``; a state dict of torchvision's or timm's (``.pth``,
            ``.pt``, ``.safetensors``), plain or inside another training's checkpoint.
        backbone: its name, where the source does not say: one of the configs' names, one of
            timm's, or ``torchvision.NAME``. A ResNet with a 3x3 ``conv1`` is ``resnet18_small`` or
            ``resnet50_small``, its padding ``kwargs={"stem_padding": 1}``.
        kwargs: of the backbone.
        prefix: of the backbone's weights in the file, or its end; None for the one with most of
            them.
        size: side of the images that the network gets; None for that of training, else 224.
        mean, std: of the channels, in [0, 1]; None for those of training, else ImageNet's.
        trusted: also read a checkpoint that holds more than plain values, which may run any code.
        device: where to put it; "auto" is a GPU if there is one.

    Raises:
        FileNotFoundError: nothing there, or a folder without a checkpoint.
        ValueError: a file that cannot be read, a backbone that is not known or does not fit the
            weights or the size, or a device that this machine does not have.
    """
    where = find_device(str(device))
    found = read_source(Path(source), trusted)
    card = found.card or _card_of(found, backbone)
    if backbone is not None and backbone != card.backbone:
        card = replace(card, backbone=backbone, kwargs={}, small_stem=False)
    given = card.kwargs if kwargs is None else kwargs
    card = replace(
        card,
        kwargs={k: v for k, v in given.items() if k not in _DOWNLOADS},
        preprocessing=_preprocessing(card.preprocessing, size, mean, std),
    )
    net = build(card)
    load_backbone(found.path, net, found.state, f"backbone.name={card.backbone}", prefix)
    card.features = _features(net.eval(), card)
    return Encoder(net, card).eval().to(where)


def build(card: Card) -> nn.Module:
    """The backbone that a card describes, with the weights that its constructor draws; torch's
    random state stays as it is.

    Raises:
        ValueError: a name that is not known, or arguments that its constructor does not take.
    """
    name, table = card.backbone, BaseMethod._BACKBONES
    if not (name in table or timm.is_model(name) or name.startswith(TORCHVISION)):
        raise ValueError(
            f"backbone.name={name!r} is none of {', '.join(table)}, nor of timm's models; "
            f"torchvision's are {TORCHVISION}NAME"
        )
    if HOST == "builtin" and card.method in _OTHER_VITS and name.startswith("vit"):
        raise ValueError(
            f"the {name} of solo-learn's {card.method} is another network than timm's: it needs "
            "solo-learn on the path"
        )
    dataset = "cifar10" if card.small_stem else "custom"
    try:
        with torch.random.fork_rng(devices=[]), quiet():
            if name.startswith(TORCHVISION):
                net = torchvision.models.get_model(name.removeprefix(TORCHVISION), **card.kwargs)
                parent, _, last = classifier_of(net).rpartition(".")
                setattr(net.get_submodule(parent), last, nn.Identity())
                return net
            if name not in table:
                return timm.create_model(name, num_classes=0, **card.kwargs)
            return build_backbone(table, name, card.kwargs, dataset, card.method)
    except Exception as error:  # whatever a constructor of another library raises
        raise ValueError(
            f"backbone.name={name} backbone.kwargs={card.kwargs} cannot be built: {reason(error)}"
        ) from error


def classifier_of(net: nn.Module) -> str:
    """Where the classifier of a network of torchvision's stands: its last linear layer.

    Raises:
        ValueError: a network without one.
    """
    linear = [name for name, module in net.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("it ends with no linear layer, which could be taken off")
    return linear[-1]


def _features(net: nn.Module, card: Card) -> int:
    size = card.preprocessing.size
    try:
        with torch.no_grad():
            found = net(torch.zeros(1, 3, size, size))
    except Exception as error:  # whatever another library's network raises
        raise ValueError(
            f"{card.backbone} cannot take images of size={size} pixels ({reason(error)})"
        ) from error
    if found.ndim != 2:
        raise ValueError(f"{card.backbone} gives {tuple(found.shape[1:])} an image, no features")
    return found.shape[1]


def _preprocessing(
    seen: Preprocessing,
    size: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> Preprocessing:
    if size is not None and size != seen.size:
        if size < 1:
            raise ValueError(f"size={size}: must be at least 1")
        seen = replace(seen, size=size, resize=size * seen.resize // seen.size)
    for name, values in (("mean", mean), ("std", std)):
        if values is not None:
            seen = replace(seen, **{name: _three(name, values)})
    return seen


def _three(name: str, values: Sequence[float]) -> tuple[float, ...]:
    try:
        found = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        found = ()
    fit = all(math.isfinite(value) and (name == "mean" or value > 0) for value in found)
    if len(found) != 3 or not fit:
        above = " above 0" if name == "std" else ""
        raise ValueError(f"{name}={values}: must be three finite numbers{above}, one a channel")
    return found


def _card_of(found: Source, backbone: str | None) -> Card:
    cfg = found.cfg
    name = OmegaConf.select(cfg, "backbone.name") or backbone
    if name is None:
        raise ValueError(
            f"{found.path} does not say what network it is of: set backbone.name=NAME, one of "
            f"{', '.join(BaseMethod._BACKBONES)}, one of timm's, or {TORCHVISION}NAME"
        )
    dataset = OmegaConf.select(cfg, "data.dataset")
    entry = OmegaConf.select(cfg, "augmentations[0]")
    seen = Preprocessing(224, 256, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)
    if entry is not None and "crop_size" in entry:
        seen = Preprocessing.of(dataset if dataset in DATASETS else "custom", entry)
    given = OmegaConf.select(cfg, "backbone.kwargs")
    return Card(
        backbone=name,
        kwargs=OmegaConf.to_container(given) if given else {},
        small_stem=dataset in _SMALL and name in ("resnet18", "resnet50"),
        preprocessing=seen,
        method=cfg.get("method"),
        dataset=dataset,
        settings=OmegaConf.to_container(cfg),
        **found.facts,
    )
