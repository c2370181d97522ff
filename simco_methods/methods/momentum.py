"""What the contrastive methods with a momentum encoder share: projectors, the two-sided step."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig
from torch import Tensor

from simco_methods.host import LeanMomentumMethod
from simco_methods.host.ema import initialize_momentum_params
from simco_methods.host.metrics import mean_of
from simco_methods.methods.monitor import EmbeddingMonitor
from simco_methods.methods.parts import Contrasted, MomentumProjected, projector


class MomentumContrast(Contrasted, MomentumProjected, EmbeddingMonitor, LeanMomentumMethod):
    """An encoder whose queries are contrasted with a momentum encoder's keys.

    View 1 is the query, view 2 the key, one forward each: 4F a step. With
    ``method_kwargs.symmetric`` each view is both, 8F, and the loss is the mean of the two sides.
    A method says what it contrasts with in :meth:`contrast`.
    """

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        kwargs = self.cfg.method_kwargs
        widths = (self.features_dim, kwargs.proj_hidden_dim, kwargs.proj_output_dim)
        self.projector = projector(*widths)
        self.momentum_projector = projector(*widths)
        initialize_momentum_params(self.projector, self.momentum_projector)

    def contrast(self, query: Tensor, key: Tensor, side: int) -> Tensor:
        """The loss of one side: 0 has view 1 as query and view 2 as key, 1 the reverse."""
        raise NotImplementedError

    def training_step(self, batch: list[Any], batch_idx: int) -> Tensor:
        """The contrastive loss plus the probes'."""
        queries, keys = ((0, 1), (0, 1)) if self.cfg.method_kwargs.symmetric else ((0,), (1,))
        batch = self.channels_last(batch)
        out = self.forward_views(batch, queries)
        out.update(self.forward_momentum_views(batch, keys))
        # Forwarded in the order of the views, as solo-learn does (batch norm remembers it); each
        # query's key is of the other view.
        pairs = list(zip(out["z"], reversed(out["momentum_z"]), strict=True))
        losses = [self.contrast(query, key, side) for side, (query, key) in enumerate(pairs)]
        loss = mean_of(losses)
        self.log_contrast(loss, *pairs[0])
        return loss + out["loss"] + out.get("momentum_loss", 0.0)

    def log_contrast(self, loss: Tensor, query: Tensor, key: Tensor) -> None:
        """Logs the loss and side 0's diagnostics."""
        raise NotImplementedError
