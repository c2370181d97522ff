"""Parts that several methods share, each written once."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from simco_methods.losses import l2_normalize


def projector(features_dim: int, hidden_dim: int, output_dim: int) -> nn.Sequential:
    """Two linear layers with a ReLU between, no batch norm, as in MoCo v2 and the paper."""
    return nn.Sequential(
        nn.Linear(features_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, output_dim)
    )


class Projected:
    """An embedding behind a projector. Mixed into methods that set ``self.projector``."""

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Adds the projector."""
        return super().learnable_params + [
            {"name": "projector", "params": self.projector.parameters()}
        ]

    def forward(self, X: Tensor) -> dict[str, Tensor]:
        """Adds ``z``, the L2-normalised embedding (N, proj_output_dim)."""
        out = super().forward(X)
        return {**out, "z": l2_normalize(self.projector(out["feats"]))}

    def negatives_per_anchor(self, batch: int) -> int:
        """Negatives of an anchor when all processes together train on ``batch`` images a step."""
        return batch - 1
