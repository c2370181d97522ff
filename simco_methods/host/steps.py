"""Training and validation steps that hold under both hosts.

solo-learn's own steps forward every view through both networks, give NaN where a batch has no
label, and lose tau on a resume. These forward the views that a method names, keep the names of its
logs, hooks and outputs, and are what the methods of the pack are built on, whichever host supplies
the backbone, the optimiser and the schedule. A training step waits for the device only where
loggers are updated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from simco_methods.host.ema import MomentumUpdater
from simco_methods.host.metrics import probe_metrics
from simco_methods.host.view_steps import ViewSteps

__all__ = ["MomentumSteps", "ViewSteps"]


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
            self._log_probe(outs, "train_momentum_", "momentum_")
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

        A step that the float16 gradient scaler skips, or that is left out, leaves the EMA as it is;
        tau and the learning rate go on with the count of steps, which includes it.
        """
        if self.trainer.global_step > self.last_step:
            if not (self._scaler_skipped() or self.step_left_out):
                self.momentum_updater.update_pairs(self.momentum_pairs)
            self._step_values["tau"] = self.momentum_updater.cur_tau
            self._set_tau()
        self.last_step = self.trainer.global_step
        super().on_train_batch_end(outputs, batch, batch_idx)

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
