"""Encoders from run folders, checkpoints, exported files and state dicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import timm
import torch
from omegaconf import DictConfig, OmegaConf
from safetensors import SafetensorError, safe_open
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn

from simco_methods.checkpoints import configuration, read_file
from simco_methods.data.datasets import DATASETS
from simco_methods.data.transforms import Preprocessing
from simco_methods.encoder.card import Card
from simco_methods.encoder.encoder import Encoder
from simco_methods.encoder.matching import load_backbone
from simco_methods.host import BaseMethod
from simco_methods.host.builtin.backbones import build_backbone
from simco_methods.machine import find_device

_SMALL = ("cifar10", "cifar100")  # on which solo-learn gives ResNets a stem for small images
_LAST = "checkpoints/last.ckpt"


@dataclass
class _Source:
    """What a file holds."""

    path: Path
    state: Mapping[str, Tensor]
    card: Card | None = None
    cfg: DictConfig = field(default_factory=lambda: OmegaConf.create({}))
    facts: dict[str, Any] = field(default_factory=dict)  # of a card


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
        backbone: its name, where the source does not say: one of the configs' names, or one of
            timm's.
        kwargs: of the backbone.
        prefix: of the backbone's weights in the file; None for the one with most of them.
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
    found = _read(Path(source), trusted)
    card = found.card or _card_of(found, backbone)
    if backbone is not None and backbone != card.backbone:
        card = replace(card, backbone=backbone, kwargs={}, small_stem=False)
    if kwargs is not None:
        card = replace(card, kwargs=dict(kwargs))
    seen = card.preprocessing
    if size is not None and size != seen.size:
        seen = replace(seen, size=size, resize=size * seen.resize // seen.size)
    for name, value in (("mean", mean), ("std", std)):
        if value is not None and len(value) != 3:
            raise ValueError(f"{name}={list(value)}: must be three numbers, one a channel")
    seen = replace(seen, mean=tuple(mean or seen.mean), std=tuple(std or seen.std))
    card = replace(card, preprocessing=seen)
    net = build(card)
    load_backbone(found.path, net, found.state, f"backbone.name={card.backbone}", prefix)
    card.features = _features(net.eval(), card)
    return Encoder(net, card).eval().to(where)


def build(card: Card) -> nn.Module:
    """The backbone that a card describes, with the weights that its constructor draws.

    Raises:
        ValueError: a name that is not known, or arguments that its constructor does not take.
    """
    name, table = card.backbone, BaseMethod._BACKBONES
    dataset = "cifar10" if card.small_stem else "custom"
    # solo-learn's transformers want to be told the method; it changes only those of mae and mocov3.
    try:
        if name not in table and timm.is_model(name):
            return timm.create_model(name, num_classes=0, **card.kwargs)
        return build_backbone(table, name, card.kwargs, dataset, card.method)
    except TypeError as error:
        raise ValueError(f"backbone.name={name} cannot be built so: {error}") from error


def _features(net: nn.Module, card: Card) -> int:
    size = card.preprocessing.size
    try:
        with torch.no_grad():
            found = net(torch.zeros(1, 3, size, size))
    except Exception as error:  # whatever another library's network raises
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{card.backbone} cannot take images of size={size} pixels ({reason})"
        ) from error
    if found.ndim != 2:
        raise ValueError(f"{card.backbone} gives {tuple(found.shape[1:])} an image, no features")
    return found.shape[1]


# ---- what a source says --------------------------------------------------------------------------


def _read(source: Path, trusted: bool) -> _Source:
    path = _file_in(source) if source.is_dir() else source
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    content = read_file(path, trusted)
    state = _tensors(content)
    if state is None:
        raise ValueError(f"{path} holds no weights (no mapping of names to tensors)")
    card = _card_beside(path)
    if card is not None or "state_dict" not in content:
        return _Source(path, state, card)
    facts: dict[str, Any] = {"steps": content.get("global_step")}
    if "epoch" in content:
        facts["epochs"] = int(content["epoch"]) + 1
    facts["classes"] = content.get("simco_methods", {}).get("classes") or []
    summary = path.parent.parent / "summary.json"
    if str(path).endswith(_LAST) and summary.is_file():  # of a finished run
        said = json.loads(summary.read_text(encoding="utf-8"))
        named = {**said.get("last_epoch", {}), **said}
        facts["accuracies"] = {
            k: v for k, v in named.items() if "acc" in k and isinstance(v, float)
        }
        facts["versions"] = said.get("versions", {})
    return _Source(path, state, None, configuration(path, content), facts)


def _file_in(folder: Path) -> Path:
    last = folder / _LAST
    if last.is_file():
        return last
    for ending in ("*.ckpt", "*.safetensors", "*.pth"):
        found = sorted(folder.glob(ending))
        newest = [path for path in found if path.name == "last.ckpt"]
        if len(newest or found) == 1:
            return (newest or found)[0]
        if found:
            names = ", ".join(path.name for path in found[:4])
            raise ValueError(f"{folder} holds several ({names}): name one of them")
    raise FileNotFoundError(f"there is no checkpoint in the folder {folder} (nor {_LAST} in it)")


def _read_safetensors(path: Path) -> _Source:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            state = {key: file.get_tensor(key) for key in file.keys()}
            within = (file.metadata() or {}).get("simco_methods")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error})") from error
    card = Card.from_json(within, f"the card in {path}") if within else _card_beside(path)
    return _Source(path, state, card)


def _card_beside(path: Path) -> Card | None:
    beside = path.with_suffix(".json")
    if not beside.is_file():
        return None
    return Card.from_json(beside.read_text(encoding="utf-8"), beside)


def _tensors(content: Any) -> Mapping[str, Tensor] | None:
    """The largest mapping of names to tensors in it, at most two levels down."""
    if not isinstance(content, Mapping):
        return None
    own = {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, Tensor)}
    within = [_tensors(v) for k, v in content.items() if k != "optimizer_states"]
    return max([own, *(w for w in within if w)], key=len) or None


def _card_of(found: _Source, backbone: str | None) -> Card:
    cfg = found.cfg
    name = OmegaConf.select(cfg, "backbone.name") or backbone
    if name is None:
        raise ValueError(
            f"{found.path} does not say what network it is of: set backbone.name=NAME, one of "
            f"{', '.join(BaseMethod._BACKBONES)}, or one of timm's"
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
