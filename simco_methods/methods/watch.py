"""Warnings of an embedding that has lost its spread, and of a loss that stays where it began."""

from __future__ import annotations

import warnings
from typing import Any

# Of what a loss can gain over chance. In the second epoch after the warm-up the slowest of the runs
# that learn, 50 on CIFAR-10 and the digits, had gained 0.034 (SimSiam on the digits). An untrained
# encoder can be above: it tells images apart, too.
_LEAST_GAIN = 0.03


class TrainingWatch:
    """Plain warnings, each once a run, of an embedding or a loss that tells no images apart."""

    def __init__(self):
        self._warned: set[str] = set()
        self._at_chance = False

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain values."""
        return {"warned": sorted(self._warned), "at_chance": self._at_chance}

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from another's :meth:`state`."""
        self._warned, self._at_chance = set(state["warned"]), state["at_chance"]

    def check(self, std: float, rank: float, similarity: float, rows: int, dim: int) -> None:
        """Warns of the first that holds.

        Args:
            std, rank, similarity: the epoch's means of :func:`embedding_std`,
                :func:`effective_rank` and :func:`mean_similarity`.
            rows: N, of each.
            dim: D.
        """
        if std < 0.05 / dim**0.5:
            self._warn(
                "std",
                f"the embedding has collapsed: its std is {std:.2g}, a spread one has about "
                f"{dim**-0.5:.2g}. All images are mapped to one point; the loss may look fine.",
            )
        elif similarity > 0.99:
            self._warn(
                "similarity",
                f"the embedding hardly varies: the mean cosine of two images is {similarity:.4f}, "
                "of a spread one it is about 0. All images are mapped to nearly one point.",
            )
        elif rank < min(2, 1 + (min(rows, dim) - 1) / 4):  # few rows have a low one at best
            self._warn(
                "rank",
                f"the embedding's effective rank is {rank:.2f} of {dim}: it varies along one "
                "direction only.",
            )

    def check_loss(self, name: str, loss: float, chance: float, best: float) -> None:
        """Warns where the loss is not below its chance level in two epochs that follow each other.

        Args:
            name: under which it is logged.
            loss: the epoch's mean.
            chance, best: see :meth:`~simco_methods.methods.monitor.EmbeddingMonitor.loss_range`.
        """
        before, self._at_chance = self._at_chance, loss > chance - _LEAST_GAIN * (chance - best)
        if before and self._at_chance:
            self._warn(
                "chance",
                f"{name} is {loss:.4g}, at its chance level: {chance:.4g} is what an embedding "
                "that cannot tell images apart has. Nothing is learnt; look at the learning rate, "
                "the augmentations and the images.",
            )

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, stacklevel=4)
