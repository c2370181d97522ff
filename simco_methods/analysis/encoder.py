"""The networks of a checkpoint, of any method of the pack or of solo-learn, from its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor, nn

from simco_methods.checkpoints import below, configuration, load_weights, read_checkpoint
from simco_methods.dictionary import KeyQueue
from simco_methods.host import BaseMethod
from simco_methods.host.builtin.backbones import build_backbone, features_dim
from simco_methods.losses import l2_normalize


class Network(nn.Module):
    """A backbone and its projector: images (N, 3, H, W) to features and embeddings."""

    def __init__(self, backbone: nn.Module, projector: nn.Module):
        super().__init__()
        self.backbone, self.projector = backbone, projector

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features (N, F) and L2-normalised embeddings (N, D)."""
        features = self.backbone(images)
        return features, l2_normalize(self.projector(features))


@dataclass
class Checkpoint:
    """What is analysed.

    Attributes:
        path: the file.
        cfg: the configuration it was trained with, and what was set over it.
        online: the network of the anchors.
        momentum: the network of the keys; the online one where there is no other.
        step, epoch: optimiser steps and epochs done.
        queues: the pack's key queues.
        resumable: whether the run's order of images is known (a checkpoint of simco-pretrain).
    """

    path: Path
    cfg: DictConfig
    online: Network
    momentum: Network
    step: int
    epoch: int
    queues: list[KeyQueue]
    resumable: bool

    @property
    def has_momentum(self) -> bool:
        return self.momentum is not self.online


def load_checkpoint(path: Path, overrides: DictConfig, trusted: bool = False) -> Checkpoint:
    """The networks of a checkpoint in evaluation mode, on the CPU.

    Its configuration is what ``simco-pretrain`` wrote into it, else the ``args.json`` beside it,
    as solo-learn's ``main_pretrain.py`` leaves one.

    Args:
        path: the checkpoint.
        overrides: keys to set over its configuration (``data``, ``backbone``, ``augmentations``).
        trusted: see :func:`~simco_methods.checkpoints.read_file`.

    Raises:
        FileNotFoundError, ValueError: see :func:`~simco_methods.checkpoints.read_file`; no
            configuration, no backbone or projector, or weights that do not fit ``backbone.name``.
    """
    content = read_checkpoint(path, trusted)
    trained = configuration(path, content)
    try:
        cfg = OmegaConf.merge(trained, overrides)
    except OmegaConfBaseException as error:
        raise ValueError(f"the settings do not fit those of {path}: {error}") from error
    if cfg.get("data") and cfg.data.get("dataset") != OmegaConf.select(trained, "data.dataset"):
        cfg.data = overrides.data  # paths, shares and counts were of the other data set
    for key in ("backbone.name", "data.dataset", "augmentations"):
        if OmegaConf.select(cfg, key) is None:
            raise ValueError(f"{path} does not say what it was trained with: set {key}=...")
    state = content["state_dict"]
    # The stem is of the data set that was trained on, whatever is analysed.
    dataset = OmegaConf.select(trained, "data.dataset") or cfg.data.dataset
    online = _network(path, cfg, dataset, state, "")
    momentum = online
    if any(key.startswith("momentum_projector.") for key in state):
        momentum = _network(path, cfg, dataset, state, "momentum_")
    return Checkpoint(
        path=path,
        cfg=cfg,
        online=online,
        momentum=momentum,
        step=int(content.get("global_step", 0)),
        epoch=int(content.get("epoch", -1)) + 1,
        queues=_queues(state),
        resumable="simco_methods" in content,
    )


def _network(
    path: Path, cfg: DictConfig, dataset: str, state: Mapping[str, Tensor], prefix: str
) -> Network:
    for part in ("backbone", "projector"):
        if not any(key.startswith(f"{prefix}{part}.") for key in state):
            kinds = sorted({key.split(".")[0] for key in state})
            raise ValueError(
                f"{path} has no {prefix}{part}: the analyses are of embeddings, a backbone's "
                f"behind a projector (it holds {', '.join(kinds)})"
            )
    name, kwargs = cfg.backbone.name, cfg.backbone.get("kwargs") or {}
    try:
        backbone = build_backbone(BaseMethod._BACKBONES, name, kwargs, dataset, cfg.get("method"))
    except TypeError as error:
        raise ValueError(f"backbone.name={name} cannot be built so: {error}") from error
    load_weights(path, backbone, below(state, f"{prefix}backbone."), f"backbone.name={name}")
    what = f"{path}: {prefix}projector"
    projector = sequential_from(below(state, f"{prefix}projector."), what)
    width = features_dim(name, backbone)
    first = next(layer for layer in projector if isinstance(layer, nn.Linear))
    if first.in_features != width:
        raise ValueError(f"{what} takes {first.in_features} features, {name} gives {width}")
    return Network(backbone, projector).eval().requires_grad_(False)


def sequential_from(state: Mapping[str, Tensor], what: str) -> nn.Module:
    """A projector rebuilt from its weights: linear layers, batch norms, ReLUs where numbers lack.

    All projectors of the pack and those of solo-learn that are an ``nn.Sequential`` are of these.

    Args:
        state: ``<number>.<parameter>`` to tensors; without numbers it is one linear layer.
        what: what to call it in an error.

    Raises:
        ValueError: a layer of another kind.
    """
    if set(state) <= {"weight", "bias"}:
        state = {f"0.{key}": value for key, value in state.items()}
    layers: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        match = re.fullmatch(r"(\d+)\.(\w+)", key)
        if match is None:
            raise ValueError(f"{what} is no sequence of layers (it holds {key})")
        layers.setdefault(int(match[1]), {})[match[2]] = value
    modules: list[nn.Module] = []
    for number in range(max(layers) + 1):
        layer = layers.get(number)
        if layer is None:
            modules.append(nn.ReLU())
        elif "running_mean" in layer:
            modules.append(nn.BatchNorm1d(len(layer["running_mean"]), affine="weight" in layer))
        elif "weight" in layer and layer["weight"].ndim == 2:
            rows, columns = layer["weight"].shape
            modules.append(nn.Linear(columns, rows, bias="bias" in layer))
        else:
            raise ValueError(f"{what}: layer {number} is neither linear nor a batch norm")
    if not any(isinstance(module, nn.Linear) for module in modules):
        raise ValueError(f"{what} has no linear layer")
    projector = nn.Sequential(*modules)
    projector.load_state_dict({f"{n}.{k}": v for n, p in layers.items() for k, v in p.items()})
    return projector


def _queues(state: Mapping[str, Tensor]) -> list[KeyQueue]:
    queues = []
    for number in sorted({key.split(".")[1] for key in state if key.startswith("queues.")}):
        stored = below(state, f"queues.{number}.")
        queues.append(KeyQueue(*stored["keys"].shape))
        queues[-1].load_state_dict(stored)
    return queues
