"""BYOL, with its anchors weighed as InfoNCE would weigh them (Eq. 10)."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig
from torch import Tensor

from simco_methods.host import LeanMomentumMethod
from simco_methods.host.ema import initialize_momentum_params
from simco_methods.methods.monitor import EmbeddingMonitor
from simco_methods.methods.parts import MomentumProjected, Predicted, batch_norm_mlp
from simco_methods.methods.settings import method_settings


class BYOLHardness(EmbeddingMonitor, Predicted, MomentumProjected, LeanMomentumMethod):
    """BYOL (Grill et al., https://arxiv.org/abs/2006.07733) times the anchor hardness (Eq. 10 and
    Table 9 of Zhang et al., CVPR 2022, https://arxiv.org/abs/2203.17248).

    The squared distance 2 - 2 h(q).k of each view's prediction from the other view's key, which a
    momentum encoder gives, summed over the two; no negatives. Each anchor's term is weighed by the
    scalar component that InfoNCE would give it. With ``weighted: false`` it is solo-learn's
    ``byol``, step by step. 8F a step.

    Config, ``method_kwargs``:
        proj_hidden_dim, proj_output_dim: widths of the projector, 128 and 128.
        pred_hidden_dim: width of the predictor's hidden layer, 128.
        weighted: whether the anchors are weighed, true.
        tau_beta: temperature of the weight, 0.1.
    """

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        kwargs = self.cfg.method_kwargs
        output = kwargs.proj_output_dim
        widths = (self.features_dim, kwargs.proj_hidden_dim, output)
        self.projector = batch_norm_mlp(*widths)
        self.momentum_projector = batch_norm_mlp(*widths)
        initialize_momentum_params(self.projector, self.momentum_projector)
        self.predictor = batch_norm_mlp(output, kwargs.pred_hidden_dim, output)

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        cfg = LeanMomentumMethod.add_and_assert_specific_cfg(cfg)
        return method_settings(cfg, {"pred_hidden_dim": 128, "weighted": True, "tau_beta": 0.1})

    def training_step(self, batch: list[Any], batch_idx: int) -> Tensor:
        """The squared distances plus the probes' losses."""
        batch = self.channels_last(batch)
        out = {**self.forward_views(batch), **self.forward_momentum_views(batch)}
        (p1, p2), (k1, k2) = out["p"], out["momentum_z"]
        loss = self._side(p1, k2) + self._side(p2, k1)
        tau, name = self.cfg.method_kwargs.tau_beta, "train_neg_cos_sim"
        self.log_contrastive(loss, p1, k2, None, tau, name=name, embeddings=out["z"][0])
        return loss + out["loss"] + out.get("momentum_loss", 0.0)

    def loss_range(self, batch: int) -> tuple[float, float] | None:
        """Of two squared distances; W of an anchor to which all are alike is 1 - 1/N."""
        return 4.0 * (1 - 1 / batch if self.cfg.method_kwargs.weighted else 1), 0.0

    def _side(self, prediction: Tensor, target: Tensor) -> Tensor:
        return self.weighted_mean(2 - 2 * (prediction * target).sum(dim=1), prediction, target)
