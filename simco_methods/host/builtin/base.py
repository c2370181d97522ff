"""The built-in host's base classes: solo-learn's contract on lightning, timm and torchvision.

Same config keys, hooks, outputs, state-dict names and order of random draws as solo-learn 1.0.6, so
that methods, configs and checkpoints move between the two.
"""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.optim.lr_scheduler import MultiStepLR

from simco_methods.host.builtin.backbones import BACKBONES, build_backbone, features_dim
from simco_methods.host.builtin.optimizers import OPTIMIZERS, without_decay_on_vectors
from simco_methods.host.ema import initialize_momentum_params
from simco_methods.host.schedule import WarmupCosineLR
from simco_methods.host.steps import MomentumSteps, ViewSteps

SCHEDULERS = ("warmup_cosine", "step", "none")

_DEFAULTS = {
    "backbone.kwargs": {},
    "optimizer.exclude_bias_n_norm_wd": False,
    "optimizer.kwargs": {},
    "accumulate_grad_batches": 1,
    "scheduler.lr_decay_steps": None,
    "scheduler.min_lr": 0.0,
    "scheduler.warmup_start_lr": 3e-5,
    "scheduler.warmup_epochs": 10,
    "scheduler.interval": "step",
    "knn_eval.enabled": False,
    "knn_eval.k": 20,
    "knn_eval.distance_func": "euclidean",
    "performance.disable_channel_last": False,
    "method_kwargs": {},
}

_MOMENTUM_DEFAULTS = {
    "momentum.base_tau": 0.99,
    "momentum.final_tau": 1.0,
    "momentum.classifier": False,
}


def set_defaults(cfg: DictConfig, defaults: dict[str, Any]) -> DictConfig:
    """Fills in the dotted keys that ``cfg`` lacks. Changes it and returns it."""
    for key, value in defaults.items():
        if OmegaConf.select(cfg, key) is None:
            OmegaConf.update(cfg, key, value, force_add=True)
    return cfg


class BaseMethod(ViewSteps, pl.LightningModule):
    """A backbone, an online linear classifier on its detached features, optimiser and schedule.

    Args:
        cfg: a parsed config: ``method``, ``backbone``, ``data`` (with ``num_classes`` and the
            numbers of crops), ``max_epochs``, ``optimizer`` (the rates already scaled to the
            batch), ``scheduler`` and, with defaults, ``accumulate_grad_batches``, ``knn_eval``,
            ``performance``, ``method_kwargs``. Missing defaults are filled in, in place.

    Raises:
        ValueError: a backbone, optimiser, scheduler or interval that does not exist.
    """

    _BACKBONES = BACKBONES
    _OPTIMIZERS = OPTIMIZERS
    _SCHEDULERS = SCHEDULERS

    def __init__(self, cfg: DictConfig):
        super().__init__()
        cfg = self.add_and_assert_specific_cfg(cfg)
        self.cfg = cfg

        self.backbone_name: str = cfg.backbone.name
        self.backbone = self._build_backbone()
        self.features_dim: int = features_dim(self.backbone_name, self.backbone)
        self.num_classes: int = cfg.data.num_classes
        self.classifier: nn.Module = nn.Linear(self.features_dim, self.num_classes)

        # As in solo-learn, accumulating over n batches is a batch n times as large: rates follow.
        self.accumulate_grad_batches: int = cfg.accumulate_grad_batches
        scale = self.accumulate_grad_batches or 1
        self.lr: float = cfg.optimizer.lr * scale
        self.classifier_lr: float = cfg.optimizer.classifier_lr * scale
        self.min_lr: float = cfg.scheduler.min_lr * scale
        self.warmup_start_lr: float = cfg.scheduler.warmup_start_lr * scale
        self.weight_decay: float = cfg.optimizer.weight_decay
        self.max_epochs: int = cfg.max_epochs
        self.batch_size: int = cfg.optimizer.batch_size
        self.num_large_crops: int = cfg.data.num_large_crops
        self.num_small_crops: int = cfg.data.num_small_crops
        self.num_crops: int = self.num_large_crops + self.num_small_crops
        self.no_channel_last: bool = cfg.performance.disable_channel_last
        self.init_steps()

    def _build_backbone(self) -> nn.Module:
        cfg = self.cfg
        return build_backbone(
            self._BACKBONES, cfg.backbone.name, cfg.backbone.kwargs, cfg.data.dataset, cfg.method
        )

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Fills in the defaults of the keys above and checks the named choices."""
        cfg = set_defaults(cfg, _DEFAULTS)
        for key, value, allowed in (
            ("optimizer.name", cfg.optimizer.name, OPTIMIZERS),
            ("scheduler.name", cfg.scheduler.name, SCHEDULERS),
            ("scheduler.interval", cfg.scheduler.interval, ("step", "epoch")),
        ):
            if value not in allowed:
                raise ValueError(f"{key}={value!r} is none of {', '.join(allowed)}")
        return cfg

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Parameter groups; the classifier has its own rate and no weight decay."""
        return [
            {"name": "backbone", "params": self.backbone.parameters()},
            {
                "name": "classifier",
                "params": self.classifier.parameters(),
                "lr": self.classifier_lr,
                "weight_decay": 0,
            },
        ]

    def configure_optimizers(self):
        """The optimiser over :attr:`learnable_params`, and the schedule a step or an epoch."""
        cfg = self.cfg
        groups = [{**group, "params": list(group["params"])} for group in self.learnable_params]
        groups = [group for group in groups if group["params"]]
        if cfg.optimizer.exclude_bias_n_norm_wd:
            groups = without_decay_on_vectors(groups)
        static = [i for i, group in enumerate(groups) if group.pop("static_lr", False)]
        optimizer = self._OPTIMIZERS[cfg.optimizer.name](
            groups, lr=self.lr, weight_decay=self.weight_decay, **cfg.optimizer.kwargs
        )
        if cfg.scheduler.name == "none":
            return optimizer
        if cfg.scheduler.name == "step":
            return [optimizer], [MultiStepLR(optimizer, cfg.scheduler.lr_decay_steps)]
        by_step = cfg.scheduler.interval == "step"
        total = self.trainer.estimated_stepping_batches if by_step else self.max_epochs
        warmup = cfg.scheduler.warmup_epochs * total / self.max_epochs
        scheduler = WarmupCosineLR(
            optimizer,
            warmup_steps=round(warmup),
            total_steps=total,
            warmup_start_lr=self.warmup_start_lr if cfg.scheduler.warmup_epochs > 0 else self.lr,
            min_lr=self.min_lr,
            static_groups=static,
        )
        return [optimizer], [{"scheduler": scheduler, "interval": cfg.scheduler.interval}]

    def forward(self, X: Tensor) -> dict[str, Tensor]:
        """Images (N, 3, H, W) to ``feats`` (N, features_dim) and ``logits`` (N, num_classes)."""
        feats = self.backbone(self._channels_last(X))
        return {"logits": self.classifier(feats.detach()), "feats": feats}

    def multicrop_forward(self, X: Tensor) -> dict[str, Tensor]:
        """Images of small crops to ``feats`` only."""
        return {"feats": self.backbone(self._channels_last(X))}

    def _channels_last(self, X: Tensor) -> Tensor:
        return X if self.no_channel_last else X.to(memory_format=torch.channels_last)

    def base_training_step(self, X: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """One view in training; at least ``loss``, and with labels ``acc1`` and ``acc5``."""
        return self._base_shared_step(X, targets)

    def base_validation_step(self, X: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """One batch in validation; at least ``loss``, and with labels ``acc1`` and ``acc5``."""
        return self._base_shared_step(X, targets)

    def training_step(self, batch: list[Any], batch_idx: int) -> dict[str, Any]:
        """Trains the probe on all large crops; methods add their loss."""
        return self.forward_views(batch, range(self.num_large_crops))


class BaseMomentumMethod(MomentumSteps, BaseMethod):
    """Adds a momentum backbone, moved by EMA after each optimiser step, to :class:`BaseMethod`.

    Args:
        cfg: as of :class:`BaseMethod`, and ``momentum`` with ``base_tau``, ``final_tau`` and
            ``classifier`` (train a linear classifier on the momentum features too).
    """

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        self.momentum_backbone = self._build_backbone()
        initialize_momentum_params(self.backbone, self.momentum_backbone)
        self.momentum_classifier: nn.Module | None = (
            nn.Linear(self.features_dim, self.num_classes) if cfg.momentum.classifier else None
        )
        self.init_momentum_steps()

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Fills in the defaults of :class:`BaseMethod` and of ``momentum``."""
        return set_defaults(BaseMethod.add_and_assert_specific_cfg(cfg), _MOMENTUM_DEFAULTS)

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Adds the momentum classifier, if there is one."""
        groups = super().learnable_params
        if self.momentum_classifier is not None:
            groups.append(
                {
                    "name": "momentum_classifier",
                    "params": self.momentum_classifier.parameters(),
                    "lr": self.classifier_lr,
                    "weight_decay": 0,
                }
            )
        return groups

    @property
    def momentum_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """(online, momentum) modules that the EMA update pairs up."""
        return [(self.backbone, self.momentum_backbone)]

    def training_step(self, batch: list[Any], batch_idx: int) -> dict[str, Any]:
        """Trains the probes on all large crops of both networks; methods add their loss."""
        batch, views = self.channels_last(batch), range(self.num_large_crops)
        outs = {**self.forward_views(batch, views), **self.forward_momentum_views(batch, views)}
        outs["loss"] = outs["loss"] + outs.get("momentum_loss", 0.0)
        return outs

    @torch.no_grad()
    def momentum_forward(self, X: Tensor) -> dict[str, Tensor]:
        """Images (N, 3, H, W) to the momentum backbone's ``feats``, without gradient."""
        return {"feats": self.momentum_backbone(self._channels_last(X))}
