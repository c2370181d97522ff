"""The steps of a method with one network, which hold under both hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simco_methods.distributed import mean_over_processes, world_size
from simco_methods.host.knn import OnlineKNN
from simco_methods.host.metrics import EpochMeans, mean_of, probe_metrics
from simco_methods.measures import accuracies


class ViewSteps:
    """Steps of a method with one network. Mixed into a host's ``BaseMethod``."""

    # Set by the runner where loss or gradient are not finite and the step is to leave no trace.
    step_left_out = False

    def init_steps(self) -> None:
        """Sets up what the steps keep between batches; call it when the host is built.

        Sets ``has_probe``: whether there are labels to train the online classifier on.

        Raises:
            ValueError: small crops, which no step would forward.
        """
        if self.num_small_crops:
            raise ValueError(
                f"the augmentations give {self.num_small_crops} views of another size than the "
                f"first one's: {self.cfg.method} does not support multi-crop"
            )
        self.has_probe = not self.cfg.data.get("no_labels", False) and self.num_classes > 1
        self._train_means, self._val_means = EpochMeans(), EpochMeans()
        self._step_values: dict[str, Tensor | float] = {}
        if not self.has_probe:
            self.classifier = torch.nn.Identity()
        self.knn_eval = bool(self.cfg.knn_eval.enabled) and self.has_probe
        if self.knn_eval:
            self.knn = OnlineKNN(
                self.cfg.knn_eval.k, self.cfg.knn_eval.distance_func, self.num_classes
            )
        self._fills_bank = self.knn_eval

    @property
    def step_values(self) -> dict[str, Tensor | float]:
        """The latest values of a step, ``<name>_step`` as they are logged."""
        return self._step_values

    # ---- training --------------------------------------------------------------------------------

    def _base_shared_step(self, X: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Forwards one view: ``feats``, ``logits`` and what :func:`.probe_metrics` gives."""
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
        if self.has_probe:
            self._count_labels(targets)
        self._mean_over_views(outs, "")
        if self.has_probe:
            self._log_probe(outs, "train_", "")
        if self._fills_bank:
            self.knn.update("train", torch.cat(outs["feats"]), targets.repeat(len(views)))
            if self._logs_now:
                self.knn.drop_unlabelled()
        return outs

    def log_means(self, values: dict[str, Tensor], weight: Tensor | float = 1.0) -> None:
        """Logs ``<name>_step`` now and then, and the epoch's mean as ``<name>`` at its end."""
        self._step_values.update({f"{name}_step": v.detach() for name, v in values.items()})
        self._train_means.add(values, weight)

    @property
    def _logs_now(self) -> bool:
        """Whether the loggers are updated after this batch; not without a trainer."""
        trainer = self._trainer
        return trainer is not None and bool(
            trainer._logger_connector.should_update_logs or trainer.fast_dev_run
        )

    def on_train_batch_end(self, outputs: Any, batch: Sequence[Any], batch_idx: int) -> None:
        """Logs the latest values of the step, where it is seen: a call costs more than they do."""
        if self._logs_now:
            self.log_dict(self._step_values, on_step=True)

    def on_train_epoch_start(self) -> None:
        self._step_values.clear()
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

    def epoch_state(self) -> dict[str, Any]:
        """What the epoch has gathered until here, to take it up in its middle."""
        return {
            "means": self._train_means.state(),
            "values": dict(self._step_values),
            "fills_bank": self._fills_bank,
            "bank": self.knn.bank() if self._fills_bank else None,
        }

    def load_epoch_state(self, state: dict[str, Any]) -> None:
        """Goes on from another's :meth:`epoch_state`, on this one's device."""
        self._train_means.load_state(state["means"], self.device)
        self._step_values = {
            name: value.to(self.device) if isinstance(value, Tensor) else value
            for name, value in state["values"].items()
        }
        self._fills_bank = state["fills_bank"]
        if self._fills_bank:
            self.knn.load_bank([part.to(self.device) for part in state["bank"]])

    def channels_last(self, batch: Sequence[Any]) -> list[Any]:
        """The batch with its views as convolutions want them: one copy for all networks."""
        images, targets = self._views(batch)
        if not self.no_channel_last:
            images = [image.to(memory_format=torch.channels_last) for image in images]
        return [batch[0], images, targets]

    def _views(self, batch: Sequence[Any]) -> tuple[list[Tensor], Tensor]:
        _, images, targets = batch
        images = [images] if isinstance(images, Tensor) else images
        if len(images) != self.num_crops:
            raise ValueError(
                f"the batch has {len(images)} views, the augmentations give {self.num_crops}"
            )
        return images, targets

    # What a mean over this process's labelled rows weighs among those of all; None for 1.
    _label_share: Tensor | None = None

    def _count_labels(self, targets: Tensor) -> None:
        """Sets ``_labelled``, how many rows of a batch have a label, the mean over the processes,
        and ``_label_share``."""
        own = (targets != -1).sum()
        self._labelled = mean_over_processes(own)
        if (processes := world_size()) > 1:
            self._label_share = own.clamp(min=1) / self._labelled.clamp(min=1 / processes)

    def over_all_labels(self, mean: Tensor) -> Tensor:
        """A mean over this process's labelled rows of the batch that :meth:`forward_views` had, so
        weighed that the mean over the processes is that over the labelled rows of all of them."""
        return mean if self._label_share is None else mean * self._label_share

    def _mean_over_views(self, outs: dict[str, Any], prefix: str) -> None:
        for name in ("loss", "acc1", "acc5"):
            if prefix + name in outs:
                outs[prefix + name] = self.over_all_labels(mean_of(outs[prefix + name]))

    def _log_probe(self, outs: dict[str, Any], log: str, prefix: str) -> None:
        names = {"class_loss": "loss", "acc1": "acc1", "acc5": "acc5"}
        values = {
            log + name: outs[prefix + key] for name, key in names.items() if prefix + key in outs
        }
        self._train_means.add(values, self._labelled)

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
        metrics = {f"{prefix}{name}": out[name] for name in ("loss", "acc1", "acc5") if name in out}
        if keep:
            self._val_means.add(metrics, (targets != -1).sum())
        return metrics

    def on_validation_epoch_end(self) -> None:
        log = self._val_means.pop(self.trainer)
        if self.knn_eval and not self.trainer.sanity_checking:
            found = self.knn.compute()
            self.knn.reset()
            if found is not None:
                log |= accuracies("val_knn_", *found)
        self.log_dict(log, sync_dist=True)
