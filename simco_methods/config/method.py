"""The method of a config, held to what it takes."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError

from simco_methods.config.checks import number
from simco_methods.config.walk import mapping_at, reason, value_at
from simco_methods.host import BaseMomentumMethod
from simco_methods.methods import METHODS, find_method
from simco_methods.methods.settings import unknown_settings

# What a method reads of a config beside its own settings.
_FRAME = {
    "backbone": {"name": "resnet18"},
    "data": {"dataset": "digits"},
    "optimizer": {"name": "sgd", "batch_size": 2, "lr": 0.1, "weight_decay": 0.0},
    "scheduler": {"name": "none"},
    "max_epochs": 1,
}


def with_method_defaults(cfg: DictConfig) -> DictConfig:
    """Completes a config by the checks of its method.

    Raises:
        ValueError: what the method refuses.
    """
    method = find_method(cfg.method)
    if issubclass(method, BaseMomentumMethod) and "momentum" not in cfg:
        cfg.momentum = {}  # solo-learn reads it without looking whether it is there
    with refusals_named(cfg.method):
        return method.add_and_assert_specific_cfg(cfg)


@contextmanager
def refusals_named(method: str) -> Iterator[None]:
    """To complete or build a method within.

    solo-learn's own check their settings by assertions without a message, or read a key that is not
    there.

    Raises:
        ValueError: with what was asserted, or which key is missing; a model without room in memory.
    """
    try:
        yield
    except (AssertionError, ConfigAttributeError) as error:
        if method in METHODS:
            raise
        if isinstance(error, ConfigAttributeError):
            refusal = f"{error.full_key} is not set"
        else:
            refusal = str(error) or traceback.extract_tb(error.__traceback__)[-1].line
        raise ValueError(f"solo-learn's {method} refuses the config: {refusal}") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):  # CUDA's is one of those
            raise
        raise ValueError(
            f"{method} has no room in memory: method_kwargs or backbone.kwargs are too large "
            f"({reason(error)})"
        ) from error


def odd_method(cfg: DictConfig) -> Iterator[str]:
    """What is wrong with ``method``, ``method_kwargs`` and ``momentum`` of a resolved config."""
    name = cfg.get("method")
    if not isinstance(name, str):
        return
    try:
        method = find_method(name)
    except ValueError as error:
        yield str(error)
        return
    no_labels = value_at(cfg, "data.no_labels") is True
    if name not in METHODS:
        yield from unread_settings(cfg, method)
        yield from needs_labels(name, no_labels)
    frame = OmegaConf.create(
        {**_FRAME, "method": name, "method_kwargs": mapping_at(cfg, "method_kwargs")}
    )
    frame.data.no_labels = no_labels
    if issubclass(method, BaseMomentumMethod):
        frame.momentum = mapping_at(cfg, "momentum")
    elif "momentum" in cfg:
        yield f"momentum.*: {name} has no momentum encoder"
    try:
        whole = with_method_defaults(frame)
    except ValueError as error:
        yield from str(error).splitlines()
        return
    taus = [value_at(whole, f"momentum.{end}_tau") for end in ("base", "final")]
    if not any(number(0, 1)(tau) for tau in taus) and taus[0] > taus[1]:
        yield f"momentum.base_tau={taus[0]} is above momentum.final_tau={taus[1]}"


def needs_labels(method: str, no_labels: bool) -> Iterator[str]:
    """That a method of solo-learn's own cannot be trained without labels."""
    if no_labels and method not in METHODS:
        yield f"solo-learn's {method} needs labels: without them its online classifier gives NaN"


def needs_other_rows(cfg: DictConfig, world_size: int) -> Iterator[str]:
    """That a method which contrasts the rows of a batch cannot be trained on one."""
    size, kwargs = cfg.optimizer.batch_size, cfg.method_kwargs
    batch = f"optimizer.batch_size={size} on {world_size} process(es)"
    components = [kwargs.get(name) for name in ("vector", "scalar")]
    in_batch = any(isinstance(c, DictConfig) and c.negatives == "batch" for c in components)
    if size * world_size == 1 and (cfg.method in ("simco", "simmoco") or in_batch):
        yield f"{batch}: {cfg.method}'s negatives are the other images of the batch; take 2 or more"
    if size == 1 and cfg.method in ("simsiam_hardness", "byol_hardness"):
        yield f"{batch}: {cfg.method} normalises over the images of a process; take 2 or more"


def unread_settings(cfg: DictConfig, method: type) -> Iterator[str]:
    """Keys that a method of solo-learn's own, which takes any, does not read."""
    sources = (inspect.getsource(kind) for kind in method.__mro__ if kind.__module__[:5] == "solo.")
    known = sorted(set(re.findall(r"method_kwargs\.(\w+)", " ".join(sources))))
    given = mapping_at(cfg, "method_kwargs")
    return unknown_settings(given, known, f"solo-learn's {cfg.method}", {})
