"""The solo-learn host: its base classes, with the pack's steps in front of its own."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf
from solo.methods.base import BaseMethod, BaseMomentumMethod
from solo.utils.lr_scheduler import LinearWarmupCosineAnnealingLR

from simco_methods.host.schedule import WarmupCosineLR
from simco_methods.host.steps import MomentumSteps, ViewSteps

__all__ = ["BaseMethod", "BaseMomentumMethod", "LeanMethod", "LeanMomentumMethod"]


class _SoloSteps:
    def __init__(self, cfg: DictConfig):
        # solo-learn's online kNN cannot be built on torchmetrics 0.12 and later; ours takes its
        # place, so its own is not asked for.
        wanted = OmegaConf.select(cfg, "knn_eval.enabled", default=False)
        if wanted:
            cfg.knn_eval.enabled = False
        super().__init__(cfg)
        self.cfg.knn_eval.enabled = wanted
        self.init_steps()

    def configure_optimizers(self):
        """solo-learn's, with its warm-up cosine in closed form: the same rates, but its own saves
        the lengths of the schedule with its state, so that an extended run would train at 0."""
        configured = super().configure_optimizers()
        if not isinstance(configured, tuple) or not isinstance(configured[1][0], dict):
            return configured
        (optimizer,), (entry,) = configured
        theirs = entry["scheduler"]
        if not isinstance(theirs, LinearWarmupCosineAnnealingLR) or "get_lr" in vars(theirs):
            return configured  # another schedule, or one with groups that it leaves alone
        for group in optimizer.param_groups:
            group["lr"] = group.pop("initial_lr")
        ours = WarmupCosineLR(
            optimizer,
            warmup_steps=round(theirs.warmup_epochs),
            total_steps=theirs.max_epochs,
            warmup_start_lr=theirs.warmup_start_lr,
            min_lr=theirs.eta_min,
        )
        return [optimizer], [{**entry, "scheduler": ours}]

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        groups = [{**group, "params": list(group["params"])} for group in super().learnable_params]
        return [group for group in groups if group["params"]]


class LeanMethod(_SoloSteps, ViewSteps, BaseMethod):
    """solo-learn's ``BaseMethod`` with the pack's steps."""


class LeanMomentumMethod(_SoloSteps, MomentumSteps, BaseMomentumMethod):
    """solo-learn's ``BaseMomentumMethod`` with the pack's steps."""

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        self.init_momentum_steps()
