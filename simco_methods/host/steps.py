"""Training and validation steps that hold under both hosts.

solo-learn's own steps forward every view through both networks, give NaN where a batch has no
label, and lose tau on a resume. These forward the views that a method names, keep the names of its
logs, hooks and outputs, and are what the methods of the pack are built on, whichever host supplies
the backbone, the optimiser and the schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simco_methods.host.ema import MomentumUpdater
from simco_methods.host.knn import OnlineKNN
from simco_methods.host.metrics import EpochMeans, probe_metrics


class ViewSteps:
    """Steps of a method with one network. Mixed into a host's ``BaseMethod``."""

    @property
    def has_probe(self) -> bool:
        """Whether there are labels to train the online classifier on."""
        return not self.cfg.data.get("no_labels", False) and self.num_classes > 1

    def init_steps(self) -> None:
        """Sets up what the steps keep between batches; call it when the host is built.

        Raises:
            ValueError: small crops, which no step would forward.
        """
        if self.num_small_crops:
            raise ValueError(
                f"the augmentations give {self.num_small_crops} views of another size than the "
                f"first one's: {self.cfg.method} does not support multi-crop"
            )
        self._train_means, self._val_means = EpochMeans(), EpochMeans()
        if not self.has_probe:
            self.classifier = torch.nn.Identity()
        self.knn_eval = bool(self.cfg.knn_eval.enabled) and self.has_probe
        if self.knn_eval:
            self.knn = OnlineKNN(
                self.cfg.knn_eval.k, self.cfg.knn_eval.distance_func, self.num_classes
            )
        self._fills_bank = self.knn_eval

    # ---- training --------------------------------------------------------------------------------

    def _base_shared_step(self, X: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Forwards one view: ``feats``, ``logits`` and the probe's ``loss``, ``acc1``, ``acc5``."""
        out = self(X)
        if not self.has_probe:
            return {**out, "loss": out["feats"].new_zeros((), dtype=torch.float32)}
        return {**out, **probe_metrics(out["logits"], targets)}

    def forward_views(self, batch: Sequence[Any], views: Sequence[int] = (0, 1)) -> dict[str, Any]:
        """Forwards the named views of a batch through the online network.

        Args:
            batch: ``[indices, [view] * num_crops, targets]``.
            views: which of the views.

        Returns:
            A list over ``views`` for each output of :meth:`forward`; ``loss`` is the probe's, the
            mean over the views.

        Raises:
            ValueError: a batch with another number of views than the config names.
        """
        images, targets = self._views(batch)
        outs = [self.base_training_step(images[view], targets) for view in views]
        outs = {name: [out[name] for out in outs] for name in outs[0]}
        self._mean_over_views(outs, "")
        if self.has_probe:
            self._log_probe(outs, targets, "train_", "")
        if self._fills_bank:
            self.knn.update("train", torch.cat(outs["feats"]), targets.repeat(len(views)))
        return outs

    def log_means(self, values: dict[str, Tensor], weight: Tensor | float = 1.0) -> None:
        """Logs ``<name>_step`` now and then, and the epoch's mean as ``<name>`` at its end."""
        self.log_dict({f"{name}_step": value for name, value in values.items()}, on_step=True)
        self._train_means.add(values, weight)

    def on_train_epoch_start(self) -> None:
        if self.knn_eval:
            # Only the epoch that is validated fills the kNN bank, and only with its own features.
            self.knn.reset()
            every = self.trainer.check_val_every_n_epoch or 1
            validates = self.trainer.enable_validation and (self.current_epoch + 1) % every == 0
            self._fills_bank = validates

    def on_train_epoch_end(self) -> None:
        for name, mean in self._train_means.pop(self.trainer).items():
            # Both of the names under which Lightning logs a mean over an epoch.
            self.log(f"{name}_epoch", mean, sync_dist=True)
            self.log(name, mean, logger=False, sync_dist=True)

    def _views(self, batch: Sequence[Any]) -> tuple[list[Tensor], Tensor]:
        _, images, targets = batch
        images = [images] if isinstance(images, Tensor) else images
        if len(images) != self.num_crops:
            raise ValueError(
                f"the batch has {len(images)} views, the augmentations give {self.num_crops}"
            )
        return images, targets

    @staticmethod
    def _mean_over_views(outs: dict[str, Any], prefix: str) -> None:
        for name in ("loss", "acc1", "acc5"):
            if prefix + name in outs:
                outs[prefix + name] = sum(outs[prefix + name]) / len(outs[prefix + name])

    def _log_probe(self, outs: dict[str, Any], targets: Tensor, log: str, prefix: str) -> None:
        names = {"class_loss": "loss", "acc1": "acc1", "acc5": "acc5"}
        values = {log + name: outs[prefix + key] for name, key in names.items()}
        self._train_means.add(values, (targets != -1).sum())

    # ---- validation ------------------------------------------------------------------------------

    def validation_step(
        self,
        batch: Sequence[Tensor],
        batch_idx: int,
        dataloader_idx: int | None = None,
        update_validation_step_outputs: bool = True,
    ) -> dict[str, Any]:
        """Probe metrics of one batch ``[images, targets]``; unlabelled rows do not count."""
        images, targets = batch
        out = self.base_validation_step(images, targets)
        metrics = {}
        if self.has_probe:
            metrics = self._val_metrics(out, targets, "val_", update_validation_step_outputs)
        if self.knn_eval and not self.trainer.sanity_checking:
            self.knn.update("test", out["feats"], targets)
        return {"batch_size": len(targets), **metrics}

    def _val_metrics(
        self, out: dict[str, Tensor], targets: Tensor, prefix: str, keep: bool
    ) -> dict[str, Tensor]:
        metrics = {f"{prefix}{name}": out[name] for name in ("loss", "acc1", "acc5")}
        if keep:
            self._val_means.add(metrics, (targets != -1).sum())
        return metrics

    def on_validation_epoch_end(self) -> None:
        log = self._val_means.pop(self.trainer)
        if self.knn_eval and not self.trainer.sanity_checking:
            accuracies = self.knn.compute()
            self.knn.reset()
            if accuracies is not None:
                log["val_knn_acc1"], log["val_knn_acc5"] = accuracies
        self.log_dict(log, sync_dist=True)


class MomentumSteps(ViewSteps):
    """Steps of a method with a momentum network. Mixed into a host's ``BaseMomentumMethod``."""

    def init_momentum_steps(self) -> None:
        """Sets up the EMA; call it when the host's momentum network is built."""
        self.momentum_updater = MomentumUpdater(
            self.cfg.momentum.base_tau, self.cfg.momentum.final_tau
        )
        self.last_step = 0
        if not self.has_probe:
            self.momentum_classifier = None

    def forward_momentum_views(
        self, batch: Sequence[Any], views: Sequence[int] = (0, 1)
    ) -> dict[str, Any]:
        """Forwards the named views through the momentum network, without gradient.

        Returns:
            A list over ``views`` for each output of :meth:`momentum_forward`, the names prefixed
            with ``momentum_``; ``momentum_loss`` only if there is a momentum classifier.
        """
        images, targets = self._views(batch)
        outs = [self._shared_step_momentum(images[view], targets) for view in views]
        outs = {f"momentum_{name}": [out[name] for out in outs] for name in outs[0]}
        self._mean_over_views(outs, "momentum_")
        if self.momentum_classifier is not None:
            self._log_probe(outs, targets, "train_momentum_", "momentum_")
        return outs

    def _shared_step_momentum(self, X: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Forwards one view: ``feats``, and with a momentum classifier its metrics."""
        out = self.momentum_forward(X)
        if self.momentum_classifier is not None:
            logits = self.momentum_classifier(out["feats"])
            out = {**out, "logits": logits, **probe_metrics(logits, targets)}
        return out

    def on_train_start(self) -> None:
        # Both follow from the step, so a resumed run goes on as if it had never stopped.
        self.last_step = self.trainer.global_step
        self._set_tau()

    def on_train_batch_end(self, outputs: Any, batch: Sequence[Any], batch_idx: int) -> None:
        """One EMA update for each optimiser step, however many batches it took.

        A step that the float16 gradient scaler skips leaves the EMA as it is; tau and the learning
        rate go on with the count of steps, which includes it.
        """
        if self.trainer.global_step > self.last_step:
            if not self._scaler_skipped():
                self.momentum_updater.update_pairs(self.momentum_pairs)
            self.log("tau", self.momentum_updater.cur_tau)
            self._set_tau()
        self.last_step = self.trainer.global_step

    def _scaler_skipped(self) -> bool:
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is None:
            return False
        # The scaler has just read its own flag from the device: this read adds no wait.
        scale, before = scaler.get_scale(), self._scale
        self._scale = scale
        return scale < before

    _scale = 0.0

    def _set_tau(self) -> None:
        self.momentum_updater.update_tau(
            self.trainer.global_step, self.trainer.estimated_stepping_batches
        )

    def validation_step(
        self,
        batch: Sequence[Tensor],
        batch_idx: int,
        dataloader_idx: int | None = None,
        update_validation_step_outputs: bool = True,
    ) -> dict[str, Any]:
        """As of one network; the momentum network is forwarded only if it has a classifier."""
        metrics = super().validation_step(
            batch, batch_idx, dataloader_idx, update_validation_step_outputs
        )
        if self.momentum_classifier is not None:
            images, targets = batch
            out = self._shared_step_momentum(images, targets)
            keep = update_validation_step_outputs
            metrics.update(self._val_metrics(out, targets, "momentum_val_", keep))
        return metrics
