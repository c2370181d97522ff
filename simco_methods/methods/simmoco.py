"""SimMoCo: MoCo v2 without its dictionary."""

from __future__ import annotations

from omegaconf import DictConfig
from torch import Tensor

from simco_methods.host import LeanMomentumMethod
from simco_methods.losses import dual_temperature_loss
from simco_methods.methods.momentum import MomentumContrast
from simco_methods.methods.parts import keys_of_batch
from simco_methods.methods.settings import method_settings


class SimMoCo(MomentumContrast):
    """SimMoCo (Zhang et al., CVPR 2022, https://arxiv.org/abs/2203.17248).

    Keys from a momentum encoder, the rest of the batch, of all processes, as negatives, the
    dual-temperature loss (Eq. 9). ``symmetric: true`` is SimMoCo v2+.

    Config, ``method_kwargs``:
        proj_hidden_dim, proj_output_dim: widths of the projector, 128 and 128.
        tau_alpha: intra-anchor temperature, 0.1.
        tau_beta: inter-anchor temperature, 1.0.
        symmetric: each view is query and key, false.
    """

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        cfg = LeanMomentumMethod.add_and_assert_specific_cfg(cfg)
        return method_settings(cfg, {"tau_alpha": 0.1, "tau_beta": 1.0, "symmetric": False})

    def contrast(self, query: Tensor, key: Tensor, side: int) -> Tensor:
        """Dual-temperature loss of the queries against the keys of the batch."""
        kwargs = self.cfg.method_kwargs
        taus = {"tau_alpha": kwargs.tau_alpha, "tau_beta": kwargs.tau_beta}
        return dual_temperature_loss(query, key, **taus, **keys_of_batch(key))

    def log_contrast(self, loss: Tensor, query: Tensor, key: Tensor) -> None:
        self.log_contrastive(loss, query, key, None, self.cfg.method_kwargs.tau_beta)
