"""What is watched while training: spread and rank of the embedding, hardness of the anchors."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from simco_methods.losses import anchor_hardness, penalty_entropy, relative_penalty


def embedding_std(embeddings: Tensor) -> Tensor:
    """Standard deviation over the rows, averaged over the dimensions.

    Args:
        embeddings: (N, D), L2-normalised, N >= 2.

    Returns:
        Scalar: 0 for a constant embedding, near 1/sqrt(D) for one spread over the sphere (Chen and
        He, SimSiam, https://arxiv.org/abs/2011.10566).
    """
    return embeddings.float().std(dim=0).mean()


def effective_rank(embeddings: Tensor) -> Tensor:
    """exp of the entropy of the normalised singular values (Roy and Vetterli 2007; RankMe,
    https://arxiv.org/abs/2210.02885).

    Args:
        embeddings: (N, D).

    Returns:
        Scalar from 1 (all rows on one line) to min(N, D); NaN if a row is not finite.
    """
    if not torch.isfinite(embeddings).all():
        return embeddings.new_full((), torch.nan, dtype=torch.float32)
    values = torch.linalg.svdvals(embeddings.float())
    share = values / values.sum().clamp(min=torch.finfo(torch.float32).tiny)
    return torch.exp(torch.special.entr(share).sum())


class CollapseWatch:
    """One plain warning if the embedding has lost its spread or its rank."""

    def __init__(self):
        self._warned: set[str] = set()

    def check(self, std: float, rank: float, dim: int) -> None:
        """Args: the epoch's mean of :func:`embedding_std` and :func:`effective_rank`, and D."""
        if std < 0.05 / dim**0.5:
            self._warn(
                "std",
                f"the embedding has collapsed: its std is {std:.2g}, a spread one has about "
                f"{dim**-0.5:.2g}. All images are mapped to one point; the loss may look fine.",
            )
        elif rank < 2:
            self._warn(
                "rank",
                f"the embedding's effective rank is {rank:.2f} of {dim}: it varies along one "
                "direction only.",
            )

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, stacklevel=4)


class EmbeddingMonitor:
    """Logs the loss and diagnostics of a method. Mixed into the methods of the pack."""

    # Mean and spread over the anchors of W, and the normalised entropy of r+.
    ANCHORS = ("train_hardness", "train_hardness_std", "train_penalty_entropy")

    def log_contrastive(
        self,
        loss: Tensor,
        query: Tensor,
        key: Tensor,
        negatives: Tensor | None,
        tau: float,
        *,
        name: str = "train_nce_loss",
        embeddings: Tensor | None = None,
    ) -> None:
        """Logs what :meth:`log_monitored` does, of anchors that are contrasted with negatives.

        In-batch negatives are here those of each process.

        Args:
            loss: the method's loss.
            query: anchors, (N, D).
            key: positives, (N, D).
            negatives: (M, D), None for the other rows of ``key``.
            tau: the temperature that weighs the anchors.
            name: under which the loss is logged.
            embeddings: (N, D), L2-normalised, those of the encoder where the anchors are not.
        """

        def anchors() -> dict[str, Tensor]:
            hardness = anchor_hardness(query, key, negatives, tau)
            entropy = penalty_entropy(relative_penalty(query, key, negatives, tau))
            return dict(zip(self.ANCHORS, (hardness.mean(), hardness.std(), entropy), strict=True))

        self.log_monitored(name, loss, query if embeddings is None else embeddings, anchors)

    @torch.no_grad()
    def log_monitored(
        self,
        name: str,
        loss: Tensor,
        embeddings: Tensor,
        anchors: Callable[[], dict[str, Tensor]],
        labelled: Tensor | None = None,
    ) -> None:
        """Logs the loss and ``train_z_std`` each step, and every ``trainer.log_every_n_steps``
        batches ``train_effective_rank`` and :attr:`ANCHORS`.

        Args:
            name: under which the loss is logged.
            loss: the method's loss.
            embeddings: (N, D), L2-normalised.
            anchors: gives the values of :attr:`ANCHORS`.
            labelled: (N,) bool, the anchors whose loss and hardness count; None for all.
        """
        std = {"train_z_std": embedding_std(embeddings)}
        if labelled is None:
            self.log_means({name: loss, **std})
        else:
            count = labelled.sum()
            self.log_means({name: loss}, count)
            self.log_means(std)
        every = self._trainer.log_every_n_steps if self._trainer is not None else 1
        if self._batches_seen % every == 0 and len(embeddings) > 1:
            self.log_means({"train_effective_rank": effective_rank(embeddings)})
            self.log_means(anchors(), 1 if labelled is None else count > 1)
        self._batches_seen += 1

    _batches_seen = 0

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self._batches_seen = 0

    def on_train_epoch_end(self) -> None:
        super().on_train_epoch_end()
        metrics = self.trainer.callback_metrics
        # An untrained encoder maps all images to nearly one point: give it the first epoch.
        if self.current_epoch > 0 and "train_effective_rank" in metrics:
            self._collapse_watch.check(
                float(metrics["train_z_std"]),
                float(metrics["train_effective_rank"]),
                self.cfg.method_kwargs.get("proj_output_dim", self.features_dim),
            )

    @property
    def _collapse_watch(self) -> CollapseWatch:
        if "collapse_watch" not in self.__dict__:
            self.__dict__["collapse_watch"] = CollapseWatch()
        return self.__dict__["collapse_watch"]
