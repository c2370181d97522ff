"""SimSiam, with its anchors weighed as InfoNCE would weigh them (Eq. 10)."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig
from torch import Tensor, nn

from simco_methods.host import LeanMethod
from simco_methods.methods.monitor import EmbeddingMonitor
from simco_methods.methods.parts import Predicted, batch_norm_mlp
from simco_methods.methods.settings import method_settings


class SimSiamHardness(EmbeddingMonitor, Predicted, LeanMethod):
    """SimSiam (Chen and He, https://arxiv.org/abs/2011.10566) times the anchor hardness (Table 9 of
    Zhang et al., CVPR 2022, https://arxiv.org/abs/2203.17248).

    -h(q).k of each view against the other one's embedding, which gets no gradient; no negatives, no
    momentum encoder. Each anchor's term is weighed by the scalar component that InfoNCE would give
    it. With ``weighted: false`` it is solo-learn's ``simsiam``, step by step. Two forwards and two
    backwards a step, 6F.

    Config, ``method_kwargs``:
        proj_hidden_dim, proj_output_dim: widths of the projector, 128 and 128.
        pred_hidden_dim: width of the predictor's bottleneck, 32.
        weighted: whether the anchors are weighed, true.
        tau_beta: temperature of the weight, 0.1.
    """

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        kwargs = self.cfg.method_kwargs
        hidden, output = kwargs.proj_hidden_dim, kwargs.proj_output_dim
        self.projector = nn.Sequential(
            nn.Linear(self.features_dim, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, output),
            nn.BatchNorm1d(output, affine=False),
        )
        # The batch norm behind it takes any bias away again; solo-learn's checkpoints have it.
        self.projector[6].bias.requires_grad = False
        self.predictor = batch_norm_mlp(output, kwargs.pred_hidden_dim, output, bias=False)

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        cfg = LeanMethod.add_and_assert_specific_cfg(cfg)
        return method_settings(cfg, {"pred_hidden_dim": 32, "weighted": True, "tau_beta": 0.1})

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """The predictor's rate stays as it is while the others' fall, as in SimSiam."""
        *groups, predictor = super().learnable_params
        return [*groups, {**predictor, "static_lr": True}]

    def training_step(self, batch: list[Any], batch_idx: int) -> Tensor:
        """The negative cosine similarity plus the probe's loss."""
        out = self.forward_views(batch)
        p1, p2 = out["p"]
        # Stop-gradient on the targets: without it all images are soon mapped to one point.
        z1, z2 = (z.detach() for z in out["z"])
        loss = (self._side(p1, z2) + self._side(p2, z1)) / 2
        tau, name = self.cfg.method_kwargs.tau_beta, "train_neg_cos_sim"
        self.log_contrastive(loss, p1, z2, None, tau, name=name, embeddings=z1)
        return loss + out["loss"]

    def loss_range(self, batch: int) -> tuple[float, float] | None:
        """Of -cos; weighed, an easy anchor's term is as small as that of a hopeless one."""
        return None if self.cfg.method_kwargs.weighted else (0.0, -1.0)

    def _side(self, prediction: Tensor, target: Tensor) -> Tensor:
        return self.weighted_mean(-(prediction * target).sum(dim=1), prediction, target)
