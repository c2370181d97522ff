"""SimCo: one encoder, no momentum, no dictionary."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig
from torch import Tensor

from simco_methods.distributed import gather_rows
from simco_methods.host import LeanMethod
from simco_methods.losses import dual_temperature_loss
from simco_methods.methods.monitor import EmbeddingMonitor
from simco_methods.methods.parts import Contrasted, keys_of_batch, projector
from simco_methods.methods.settings import method_settings


class SimCo(Contrasted, EmbeddingMonitor, LeanMethod):
    """SimCo (Zhang et al., CVPR 2022, https://arxiv.org/abs/2203.17248).

    Both views go through the one encoder and are each other's key; the symmetric dual-temperature
    loss (Eq. 9) has gradient on both sides and takes the rest of the batch, of all processes, as
    negatives. Two forwards and two backwards a step, 6F.

    Config, ``method_kwargs``:
        proj_hidden_dim, proj_output_dim: widths of the projector, 128 and 128.
        tau_alpha: intra-anchor temperature, 0.1.
        tau_beta: inter-anchor temperature, 1.0.
    """

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        kwargs = self.cfg.method_kwargs
        self.projector = projector(
            self.features_dim, kwargs.proj_hidden_dim, kwargs.proj_output_dim
        )

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        cfg = LeanMethod.add_and_assert_specific_cfg(cfg)
        return method_settings(cfg, {"tau_alpha": 0.1, "tau_beta": 1.0})

    def training_step(self, batch: list[Any], batch_idx: int) -> Tensor:
        """The contrastive loss plus the probe's."""
        kwargs = self.cfg.method_kwargs
        out = self.forward_views(batch)
        z1, z2 = out["z"]
        gathered = keys_of_batch(z2)
        if gathered:
            gathered["all_queries"] = gather_rows(z1)
        loss = dual_temperature_loss(
            z1,
            z2,
            tau_alpha=kwargs.tau_alpha,
            tau_beta=kwargs.tau_beta,
            symmetric=True,
            **gathered,
        )
        self.log_contrastive(loss, z1, z2, None, kwargs.tau_beta)
        return loss + out["loss"]
