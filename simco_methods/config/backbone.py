"""The backbone of a config, held to what it takes.

It is tried on the ``meta`` device, whose tensors have shapes and no content: that takes no memory,
draws nothing and is done in a fraction of a second.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torchvision
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from simco_methods.backbones import PACK_BACKBONES
from simco_methods.config.walk import mapping_at, nearest, question, reason, shown, value_at
from simco_methods.host import BaseMethod
from simco_methods.host.builtin.backbones import build_backbone, features_dim
from simco_methods.methods import find_method
from simco_methods.quiet import quiet


def odd_backbone(cfg: DictConfig) -> Iterator[str]:
    """What is wrong with ``backbone``, and whether it takes images of ``crop_size``."""
    name = value_at(cfg, "backbone.name")
    method = cfg.get("method")
    if not isinstance(name, str) or not isinstance(method, str):
        return
    table = _backbones_of(method)
    if name not in table:
        near = question(nearest(name, dict.fromkeys(table)))
        yield f"backbone.name={name!r}: must be one of {', '.join(table)}{near}"
        return
    dataset = value_at(cfg, "data.dataset")
    size = value_at(cfg, "augmentations[0].crop_size")
    batch = value_at(cfg, "optimizer.batch_size")
    kwargs = json.dumps(mapping_at(cfg, "backbone.kwargs"), sort_keys=True, default=str)
    yield from _tried(name, kwargs, str(dataset), size, 1 if batch == 1 else 2, method)


@functools.lru_cache(maxsize=256)
def _tried(
    name: str, kwargs: str, dataset: str, size: Any, batch: int, method: str
) -> tuple[str, ...]:
    given, faults = json.loads(kwargs), []

    def build(settings: dict[str, Any]) -> nn.Module | Exception:
        try:
            settings = OmegaConf.create(_offline(name, settings))
            with quiet(), torch.device("meta"):
                return build_backbone(_backbones_of(method), name, settings, dataset, method)
        except Exception as error:  # whatever a constructor of another library raises
            return error

    net = build(given)
    while (unknown := _unexpected(net)) in given:
        del given[unknown]
        known = inspect.signature(type(build({})).__init__).parameters
        near = question(nearest(unknown, dict.fromkeys(known)))
        faults.append(f"backbone.kwargs.{unknown} is unknown to {name}{near}")
        net = build(given)
    if isinstance(net, Exception):
        blamed = [
            key
            for key in given
            if not isinstance(build({k: v for k, v in given.items() if k != key}), Exception)
        ]
        where = [f"backbone.kwargs.{key}={shown(given[key])}" for key in blamed]
        faults.append(
            f"{' or '.join(where) or f'backbone.kwargs={shown(given)}'}: {name} cannot be built "
            f"with it ({reason(net)})"
        )
    elif not faults and type(size) is int and 0 < size:
        faults += _tried_on_images(name, net, size, batch)
    return tuple(faults)


def _backbones_of(method: str) -> Mapping[str, Callable[..., nn.Module]]:
    try:
        return find_method(method)._BACKBONES
    except ValueError:
        return BaseMethod._BACKBONES


def _tried_on_images(name: str, net: nn.Module, size: int, batch: int) -> Iterator[str]:
    try:
        with quiet(), torch.device("meta"), torch.no_grad():
            features = net.train()(torch.empty(batch, 3, size, size))
    except NotImplementedError:  # an operation that the meta device does not have
        return
    except Exception as error:
        images = "a batch of one image" if batch == 1 else "images"
        yield (
            f"backbone.name={name!r} cannot train on {images} of augmentations[0].crop_size={size} "
            f"pixels ({reason(error)})"
        )
        return
    if isinstance(features, Tensor) and features.shape[1:] != (features_dim(name, net),):
        yield (
            f"backbone.kwargs: {name} gives features of shape {tuple(features.shape[1:])} in place "
            f"of ({features_dim(name, net)},); leave its head and pooling as they are"
        )


def _offline(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Without what would download weights."""
    kwargs = dict(kwargs)
    if name in PACK_BACKBONES:
        return kwargs
    if isinstance(kwargs.get("pretrained"), bool):
        kwargs["pretrained"] = False
    if name in torchvision.models.list_models():
        weights = torchvision.models.get_model_weights(name)
        if kwargs.get("weights") in (*weights.__members__, "DEFAULT"):
            kwargs["weights"] = None
    return kwargs


def _unexpected(result: Any) -> str | None:
    found = re.search(r"unexpected keyword argument '(\w+)'", str(result))
    return found[1] if isinstance(result, TypeError) and found else None
