"""Parts that several methods share, each written once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from simco_methods.distributed import gather_rows, own_rows, world_size
from simco_methods.losses import anchor_hardness, l2_normalize
from simco_methods.losses.kernel import dual_loss_from_logits


def projector(features_dim: int, hidden_dim: int, output_dim: int) -> nn.Sequential:
    """Two linear layers with a ReLU between, no batch norm, as in MoCo v2 and the paper."""
    return nn.Sequential(
        nn.Linear(features_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, output_dim)
    )


def batch_norm_mlp(
    input_dim: int, hidden_dim: int, output_dim: int, bias: bool = True
) -> nn.Sequential:
    """Two linear layers with batch norm and a ReLU between: BYOL's projector and predictor, and
    without the first layer's ``bias`` SimSiam's predictor."""
    return nn.Sequential(
        nn.Linear(input_dim, hidden_dim, bias=bias),
        nn.BatchNorm1d(hidden_dim),
        nn.ReLU(),
        nn.Linear(hidden_dim, output_dim),
    )


def keys_of_batch(key: Tensor, all_keys: Tensor | None = None) -> dict[str, Tensor]:
    """What the losses with in-batch negatives need of the other processes; nothing if alone.

    Args:
        key: (N, D), the keys of this process.
        all_keys: (W * N, D), those of all, if they have been gathered already.

    Returns:
        ``all_keys`` (W * N, D) and ``positive_index`` (N,), or an empty dict.
    """
    if world_size() == 1:
        return {}
    all_keys = gather_rows(key) if all_keys is None else all_keys
    return {"all_keys": all_keys, "positive_index": own_rows(key)}


def contrastive_range(
    negatives: int | tuple[int, int], tau_alpha: float, tau_beta: float
) -> tuple[float, float] | None:
    """Eq. 7's loss where all similarities are equal, and where the positive's is 1, the others' 0.

    Args:
        negatives: of the vector and of the scalar component, one number if they have as many.
        tau_alpha, tau_beta: the components' temperatures.

    Returns:
        With equal numbers M the first is log(1 + M). None without negatives.
    """
    counts = (negatives, negatives) if isinstance(negatives, int) else negatives
    if min(counts) < 1:
        return None
    similarity = torch.tensor([0.0, 1.0], dtype=torch.float64)
    logits = (
        math.log(count) - similarity / tau
        for count, tau in zip(counts, (tau_alpha, tau_beta), strict=True)
    )
    return tuple(dual_loss_from_logits(*logits).tolist())


class Projected:
    """An embedding behind a projector. Mixed into methods that set ``self.projector``."""

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Adds the projector."""
        params = [p for p in self.projector.parameters() if p.requires_grad]
        return super().learnable_params + [{"name": "projector", "params": params}]

    def forward(self, X: Tensor) -> dict[str, Tensor]:
        """Adds what :meth:`embed` gives."""
        out = super().forward(X)
        return {**out, **self.embed(out["feats"])}

    def embed(self, feats: Tensor) -> dict[str, Tensor]:
        """Features (N, features_dim) to ``z``, the L2-normalised embedding (N, proj_output_dim)."""
        return {"z": l2_normalize(self.projector(feats))}


class Contrasted(Projected):
    """An embedding that is contrasted with the rest of the batch, or with what a method says."""

    def negatives_per_anchor(self, batch: int) -> int:
        """Negatives of an anchor when all processes together train on ``batch`` images a step."""
        return batch - 1

    def loss_range(self, batch: int) -> tuple[float, float] | None:
        """See :meth:`~simco_methods.methods.monitor.EmbeddingMonitor.loss_range`."""
        kwargs = self.cfg.method_kwargs
        return contrastive_range(batch - 1, kwargs.tau_alpha, kwargs.tau_beta)


class Predicted(Projected):
    """An embedding from which a predictor h tells the other view's, without negatives (Eq. 10).

    Mixed into methods that set ``self.projector`` and ``self.predictor``, and in ``method_kwargs``
    ``weighted`` and ``tau_beta``.
    """

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Adds the predictor."""
        predictor = {"name": "predictor", "params": self.predictor.parameters()}
        return super().learnable_params + [predictor]

    def embed(self, feats: Tensor) -> dict[str, Tensor]:
        """Adds ``p``, the L2-normalised prediction (N, proj_output_dim)."""
        projected = self.projector(feats)
        return {"z": l2_normalize(projected), "p": l2_normalize(self.predictor(projected))}

    def weighted_mean(self, terms: Tensor, prediction: Tensor, target: Tensor) -> Tensor:
        """The mean of the anchors' terms, each times sg[W] if ``weighted`` (Table 9).

        W = sum_j p_j is how hard InfoNCE at ``tau_beta`` would pull the anchor, with the targets of
        the rest of the batch, of all processes, as negatives.

        Args:
            terms: (N,), of Eq. 10.
            prediction: h(q), (N, D), L2-normalised.
            target: k, (N, D), L2-normalised.
        """
        kwargs = self.cfg.method_kwargs
        if kwargs.weighted:
            # Stop-gradient: W says how hard an anchor is pulled, it is not trained.
            pair = prediction.detach(), target.detach()
            batch = keys_of_batch(pair[1])
            terms = terms * anchor_hardness(*pair, tau=kwargs.tau_beta, **batch)
        return terms.mean()


class MomentumProjected(Projected):
    """A momentum network with a projector of its own, ``self.momentum_projector``."""

    @property
    def momentum_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Adds the projectors."""
        return super().momentum_pairs + [(self.projector, self.momentum_projector)]

    @torch.no_grad()
    def momentum_forward(self, X: Tensor) -> dict[str, Tensor]:
        """Adds ``z``, the L2-normalised key (N, proj_output_dim)."""
        out = super().momentum_forward(X)
        return {**out, "z": l2_normalize(self.momentum_projector(out["feats"]))}
