"""What is watched while training: spread and rank of the embedding, hardness of the anchors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from simco_methods.losses import anchor_hardness, penalty_entropy, relative_penalty
from simco_methods.methods.watch import TrainingWatch


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


def mean_similarity(embeddings: Tensor) -> Tensor:
    """Mean cosine of the pairs of different rows.

    Args:
        embeddings: (N, D), L2-normalised, N >= 2.

    Returns:
        Scalar: 1 for a constant embedding, near 0 for one spread over the sphere.
    """
    # The variances of unit vectors add up to what their mean cosine lacks of 1.
    return 1 - embeddings.float().var(dim=0).sum()


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
        batches ``train_effective_rank``, ``train_similarity`` and :attr:`ANCHORS`.

        Args:
            name: under which the loss is logged.
            loss: the method's loss.
            embeddings: (N, D), L2-normalised.
            anchors: gives the values of :attr:`ANCHORS`.
            labelled: (N,) bool, the anchors whose loss and hardness count; None for all.
        """
        self._loss_name, self._rows = name, len(embeddings)
        # The spread of a single row is not defined.
        std = {"train_z_std": embedding_std(embeddings)} if self._rows > 1 else {}
        if labelled is None:
            self.log_means({name: loss, **std})
        else:
            self.log_means({name: loss}, self._labelled)
            if std:
                self.log_means(std)
        every = self._trainer.log_every_n_steps if self._trainer is not None else 1
        if self._batches_seen % every == 0 and self._rows > 1:
            spread = {"effective_rank": effective_rank, "similarity": mean_similarity}
            self.log_means({f"train_{key}": of(embeddings) for key, of in spread.items()})
            self.log_means(anchors(), 1 if labelled is None else labelled.sum() > 1)
        self._batches_seen += 1

    def loss_range(self, batch: int) -> tuple[float, float] | None:
        """What the loss is by chance, with all images alike, and about the least it can become.

        Args:
            batch: images a step, of all processes.

        Returns:
            ``(chance, best)``, None where the loss does not tell the one from the other.
        """
        return None

    @property
    def has_all_negatives(self) -> bool:
        """Whether the anchors have had as many negatives as they are to have."""
        return True

    _batches_seen = 0
    _judged = False

    @functools.cached_property
    def _watch(self) -> TrainingWatch:
        return TrainingWatch()

    def epoch_state(self) -> dict[str, Any]:
        own = {"batches_seen": self._batches_seen, "judged": self._judged}
        return {**super().epoch_state(), **own}

    def load_epoch_state(self, state: dict[str, Any]) -> None:
        super().load_epoch_state(state)
        self._batches_seen, self._judged = state["batches_seen"], state["judged"]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["simco_watch"] = self._watch.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if "simco_watch" in checkpoint:
            self._watch.load_state(checkpoint["simco_watch"])

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self._batches_seen = 0
        # An untrained encoder maps all images to nearly one point: give it the first epoch.
        schedule = self.cfg.scheduler
        warmup = schedule.warmup_epochs if schedule.name == "warmup_cosine" else 0
        self._judged = self.current_epoch >= max(1, warmup) and self.has_all_negatives

    def on_train_epoch_end(self) -> None:
        super().on_train_epoch_end()
        if self._judged and self.trainer.is_global_zero:
            self._judge({k: float(v) for k, v in self.trainer.callback_metrics.items()})

    def _judge(self, metrics: dict[str, float]) -> None:
        """Warns of what the epoch's means show."""
        spread = ["train_z_std", "train_effective_rank", "train_similarity"]
        if metrics.keys() >= set(spread):
            dim = self.cfg.method_kwargs.get("proj_output_dim", self.features_dim)
            self._watch.check(*(metrics[name] for name in spread), self._rows, dim)
        levels = self.loss_range(self._rows * self.trainer.world_size)
        if levels is not None and self._loss_name in metrics:
            self._watch.check_loss(self._loss_name, metrics[self._loss_name], *levels)
