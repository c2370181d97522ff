"""MoCo v2 and MoCo v2+: a momentum encoder and a queue of its keys."""

from __future__ import annotations

from omegaconf import DictConfig
from torch import Tensor

from simco_methods.host import LeanMomentumMethod
from simco_methods.losses import info_nce_loss
from simco_methods.methods.parts import contrastive_range
from simco_methods.methods.queued import QueuedContrast
from simco_methods.methods.settings import method_settings


class MoCoV2(QueuedContrast):
    """MoCo v2 (Chen et al., https://arxiv.org/abs/2003.04297).

    InfoNCE (Eq. 1) against a queue of the keys of earlier steps, of all processes.
    ``symmetric: true`` is MoCo v2+, with one queue a side: solo-learn's ``mocov2plus``, step by
    step.

    Config, ``method_kwargs``:
        proj_hidden_dim, proj_output_dim: widths of the projector, 128 and 128.
        tau: temperature, 0.1.
        queue_size: keys in the queue (each queue), 65536.
        symmetric: each view is query and key, false.
    """

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        cfg = LeanMomentumMethod.add_and_assert_specific_cfg(cfg)
        return method_settings(cfg, {"tau": 0.1, "queue_size": 65536, "symmetric": False})

    def contrast(self, query: Tensor, key: Tensor, side: int) -> Tensor:
        """InfoNCE of the queries against the side's queue."""
        self.keep(key)
        return info_nce_loss(query, key, self.queues[side].keys, self.cfg.method_kwargs.tau)

    def log_contrast(self, loss: Tensor, query: Tensor, key: Tensor) -> None:
        self.log_contrastive(loss, query, key, self.queues[0].keys, self.cfg.method_kwargs.tau)

    def negatives_per_anchor(self, batch: int) -> int:
        """Negatives of an anchor: the queue, whatever the ``batch``."""
        return self.cfg.method_kwargs.queue_size

    def loss_range(self, batch: int) -> tuple[float, float] | None:
        kwargs = self.cfg.method_kwargs
        return contrastive_range(kwargs.queue_size, kwargs.tau, kwargs.tau)
