"""Supervised training with the anchor weights of cross entropy as they are, softened or equal."""

from __future__ import annotations

import math
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from simco_methods.distributed import mean_over_processes
from simco_methods.host import LeanMethod
from simco_methods.losses import (
    class_hardness,
    l2_normalize,
    penalty_entropy,
    weighted_cross_entropy_loss,
)
from simco_methods.methods.monitor import EmbeddingMonitor
from simco_methods.methods.settings import method_settings


class SupervisedHardness(EmbeddingMonitor, LeanMethod):
    """A classifier trained with cross entropy, whose anchor weight W = 1 - p_y can be changed
    (after Zhang et al., CVPR 2022, https://arxiv.org/abs/2203.17248).

    As it stands it is supervised training on both views, 6F a step. It tells whether weighing hard
    anchors more helps where the labels are known. Its head is trained with the backbone; the online
    classifier beside it reads detached features, as with every method.

    Config, ``method_kwargs``:
        tau_alpha: temperature among the other classes, 1.0.
        tau_beta: temperature of the anchors' weight, 1.0; above tau_alpha it is softened.
        equal_weight: give every anchor the mean weight, false.
    """

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        self.head = nn.Linear(self.features_dim, self.num_classes)

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        cfg = LeanMethod.add_and_assert_specific_cfg(cfg)
        unlabelled, classes = cfg.data.get("no_labels", False), cfg.data.get("num_classes")
        if unlabelled or (classes is not None and classes < 2):
            raise ValueError(
                f"{cfg.method} trains on labels of at least 2 classes, got "
                f"data.no_labels={unlabelled}, data.num_classes={classes}"
            )
        settings = {"tau_alpha": 1.0, "tau_beta": 1.0, "equal_weight": False}
        return method_settings(cfg, settings, projected=False)

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Adds the head."""
        return super().learnable_params + [{"name": "head", "params": self.head.parameters()}]

    def training_step(self, batch: list[Any], batch_idx: int) -> Tensor:
        """The weighted cross entropy of the head plus the probe's."""
        kwargs = self.cfg.method_kwargs
        out = self.forward_views(batch)
        feats = torch.cat(out["feats"])
        logits, targets = self.head(feats), batch[2].repeat(len(out["feats"]))
        mean = self._mean_hardness(logits, targets) if kwargs.equal_weight else None
        own = weighted_cross_entropy_loss(
            logits,
            targets,
            tau_alpha=kwargs.tau_alpha,
            tau_beta=kwargs.tau_beta,
            equal_weight=kwargs.equal_weight,
            mean_hardness=mean,
        )
        loss = self.over_all_labels(own)
        labelled = targets != -1
        self.log_monitored(
            "train_supervised_loss",
            loss,
            l2_normalize(feats.detach()),
            lambda: self._anchors(logits[labelled], targets[labelled]),
            labelled,
        )
        return loss + out["loss"]

    def loss_range(self, batch: int) -> tuple[float, float] | None:
        return math.log(self.num_classes), 0.0

    @torch.no_grad()
    def _mean_hardness(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean W of the labelled anchors of all processes."""
        hardness = class_hardness(logits, targets, self.cfg.method_kwargs.tau_beta)
        own = hardness.sum() / (targets != -1).sum().clamp(min=1)
        # Rounding may not take it above 1, where it would have no logit.
        return mean_over_processes(self.over_all_labels(own)).clamp(max=1)

    def _anchors(self, logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """W at tau_beta, its spread, and the entropy of the shares that are trained with."""
        if len(targets) < 2:  # which do not count, and have no entropy
            return dict.fromkeys(self.ANCHORS, logits.new_full((), torch.nan))
        kwargs = self.cfg.method_kwargs
        hardness = class_hardness(logits, targets, kwargs.tau_beta)
        weight = torch.ones_like(hardness) if kwargs.equal_weight else hardness
        entropy = penalty_entropy(weight / weight.sum())
        return dict(zip(self.ANCHORS, (hardness.mean(), hardness.std(), entropy), strict=True))
