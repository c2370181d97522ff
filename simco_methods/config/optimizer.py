"""The optimiser of a config, held to what it takes: the arguments of its class, and one step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from simco_methods.config.checks import Check, flag, number, optional
from simco_methods.config.walk import mapping_at, reason, shown, value_at
from simco_methods.host import BaseMethod
from simco_methods.methods.settings import unknown_settings

WITH_MOMENTUM, MOMENTUM = ("sgd", "lars"), 0.9  # those that have one, and its default


def odd_optimizer(cfg: DictConfig) -> Iterator[str]:
    """What is wrong with ``optimizer.kwargs``."""
    name = value_at(cfg, "optimizer.name")
    table = BaseMethod._OPTIMIZERS
    if not isinstance(name, str) or name not in table:
        return
    parameters = dict(inspect.signature(table[name]).parameters)
    for own in ("params", "lr", "weight_decay"):
        parameters.pop(own)
    given = mapping_at(cfg, "optimizer.kwargs")
    elsewhere = {key: f"optimizer.{key}" for key in ("lr", "weight_decay")}
    unknown = list(unknown_settings(given, parameters, name, elsewhere, "optimizer.kwargs"))
    yield from unknown
    wrong = [
        f"optimizer.kwargs.{key}={shown(value)}: must be {allowed}"
        for key, value in given.items()
        if key in parameters and (allowed := _like(parameters[key].default)(value))
    ]
    yield from wrong
    if not (unknown or wrong):
        yield from _tried(name, table[name], given)


def _like(default: Any) -> Check:
    """The check of a value by the default of its argument."""
    if isinstance(default, bool):
        return flag
    if isinstance(default, tuple):
        betas = f"a list of {len(default)} numbers from 0 to 1"

        def check(value: Any) -> str | None:
            fits = isinstance(value, list) and len(value) == len(default)
            return None if fits and not any(number(0, 1)(entry) for entry in value) else betas

        return check
    if default is None:
        return optional(flag)
    return number(0)


def _tried(
    name: str, kind: Callable[..., torch.optim.Optimizer], given: dict[str, Any]
) -> Iterator[str]:
    given = {**({"momentum": MOMENTUM} if name in WITH_MOMENTUM else {}), **given}
    if torch.cuda.is_available() and not given.get("foreach"):
        given.pop("fused", None)  # may be for the GPU only
    parameter = nn.Parameter(torch.zeros(2, 2))
    parameter.grad = torch.ones(2, 2)
    try:
        kind([{"params": [parameter]}], lr=0.1, weight_decay=0.1, **given).step()
    except Exception as error:  # whatever an optimiser of another library raises
        yield f"optimizer.kwargs={shown(given)}: {name} refuses them ({reason(error)})"
