"""Parts that several methods share, each written once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from simco_methods.losses import l2_normalize

# What other implementations call our settings.
_FOREIGN_NAMES = {
    "temperature": "tau (MoCo v2) or tau_alpha",
    "dt_m": "tau_beta = dt_m * tau_alpha",
    "plus_version": "symmetric",
    "momentum_queue": "queue_size",
}


def projector(features_dim: int, hidden_dim: int, output_dim: int) -> nn.Sequential:
    """Two linear layers with a ReLU between, no batch norm, as in MoCo v2 and the paper."""
    return nn.Sequential(
        nn.Linear(features_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, output_dim)
    )


class Projected:
    """An embedding behind a projector. Mixed into methods that set ``self.projector``."""

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Adds the projector."""
        return super().learnable_params + [
            {"name": "projector", "params": self.projector.parameters()}
        ]

    def forward(self, X: Tensor) -> dict[str, Tensor]:
        """Adds ``z``, the L2-normalised embedding (N, proj_output_dim)."""
        out = super().forward(X)
        return {**out, "z": l2_normalize(self.projector(out["feats"]))}

    def negatives_per_anchor(self, batch: int) -> int:
        """Negatives of an anchor when all processes together train on ``batch`` images a step."""
        return batch - 1


def method_settings(cfg: DictConfig, defaults: dict[str, Any]) -> DictConfig:
    """Completes and checks ``cfg.method_kwargs``.

    Args:
        cfg: the config; changed in place.
        defaults: every setting that the method knows beside the projector's widths, with its
            default. Names beginning with ``tau`` are temperatures, those ending in ``_dim`` or
            ``_size`` counts, booleans flags.

    Returns:
        ``cfg``.

    Raises:
        ValueError: a key that the method does not know, or a value out of range, by name.
    """
    defaults = {"proj_hidden_dim": 128, "proj_output_dim": 128, **defaults}
    given = OmegaConf.select(cfg, "method_kwargs") or {}
    check_settings(given, defaults, cfg.method, _FOREIGN_NAMES)
    settings = {**defaults, **{k: v for k, v in given.items() if v is not None}}
    for key, value in settings.items():
        name = f"method_kwargs.{key}"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(defaults[key], bool):
            if not isinstance(value, bool):
                raise ValueError(f"{name} must be true or false, got {value!r}")
        elif key.startswith("tau"):
            if not (number and math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
        elif not (isinstance(value, int) and number and value > 0):
            raise ValueError(f"{name} must be a whole number above 0, got {value!r}")
    OmegaConf.update(cfg, "method_kwargs", settings, merge=False, force_add=True)
    return cfg


def check_settings(
    given: Iterable[str], known: Collection[str], method: str, other_names: Mapping[str, str]
) -> None:
    """Holds the keys of ``method_kwargs`` to those that the method knows.

    Args:
        given: the keys.
        known: those that there are.
        method: whose they are, for the message.
        other_names: what a key of another implementation's means here.

    Raises:
        ValueError: the first unknown key, with what is nearest and what is known.
    """
    for key in given:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            meant = other_names.get(key) or (near[0] if near else None)
            question = f"did you mean {meant}? " if meant else ""
            raise ValueError(
                f"method_kwargs.{key} is unknown to {method}; {question}it knows {', '.join(known)}"
            )
