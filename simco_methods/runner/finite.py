"""What is done where a loss or a gradient is not finite."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from simco_methods.data.loaders import position
from simco_methods.runner.folder import RunFolder
from simco_methods.runner.stopping import RunStopped


class FiniteGuard(pl.Callback):
    """Stops a run, or leaves a step out, where loss or gradient is not finite.

    On a CPU, and where steps are left out, each step is looked at before it changes a weight. On a
    GPU that would be to wait for it each time: there it is looked at where loggers are updated and
    before any checkpoint, and the first such step is remembered.

    A step that is left out moves neither weights nor the momentum network, and its last batch not
    the queue; schedules count it. What the float16 gradient scaler skips, it skips by itself.

    Args:
        folder: of the run, for the state that is saved before it stops.
        skip: whether steps are left out.

    Attributes:
        skipped: steps that were left out.
    """

    def __init__(self, folder: RunFolder, skip: bool):
        self.folder, self.skip, self.skipped = folder, skip, 0
        self._first: Tensor | None = None  # the first step that was not finite, from 1; 0 for none
        self._batch: Any = None
        self._leaves_out = self._stopping = False

    def state_dict(self) -> dict[str, int]:
        return {"skipped": self.skipped}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skipped = state["skipped"]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batch, pl_module.step_left_out = batch, False

    def on_before_backward(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor
    ) -> None:
        finite = loss.detach().isfinite().all()
        self._note(trainer, finite)
        if self._looks_at_each(pl_module):
            if not trainer.strategy.reduce(finite.long(), reduce_op="min"):  # all stop, or none
                self._act(trainer, pl_module, "the loss")

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not gradients:
            return
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            finite = torch.stack(torch._foreach_norm(gradients)).sum().isfinite()
            self._note(trainer, finite)
            if self._looks_at_each(pl_module) and not finite:
                self._act(trainer, pl_module, "the gradient")
        if self._leaves_out:
            for parameter in parameters:
                parameter.grad = None  # which optimisers pass over
            self._leaves_out, pl_module.step_left_out = False, True
            self.skipped += 1
            self._check_statistics(pl_module)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if not self._looks_at_each(pl_module) and trainer._logger_connector.should_update_logs:
            self._look(trainer, pl_module)
        self._batch = None

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._look(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if not self._stopping:
            self._look(trainer, pl_module)

    def _looks_at_each(self, pl_module: pl.LightningModule) -> bool:
        return self.skip or pl_module.device.type == "cpu"

    def _note(self, trainer: pl.Trainer, finite: Tensor) -> None:
        if self.skip:
            return
        if self._first is None:
            self._first = torch.zeros((), dtype=torch.long, device=finite.device)
        now = (~finite).long() * (trainer.global_step + 1)
        self._first = torch.where(self._first > 0, self._first, now)

    def _act(self, trainer: pl.Trainer, pl_module: pl.LightningModule, what: str) -> None:
        if not self.skip:
            self._stop(trainer, pl_module, what)
        self._leaves_out = pl_module.step_left_out = True

    def _look(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._first is not None:
            first = int(trainer.strategy.reduce(self._first, reduce_op="max"))
            if first:
                self._stop(trainer, pl_module, "loss or gradient", first)

    def _check_statistics(self, pl_module: pl.LightningModule) -> None:
        for name, buffer in pl_module.named_buffers():
            if buffer.is_floating_point() and not buffer.isfinite().all():
                raise RunStopped(
                    f"on_nonfinite=skip: after a step that was left out {name} is not finite, so "
                    f"that nothing after it can be right. {self._likely_cause(pl_module)}"
                )

    def _stop(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        what: str,
        step: int | None = None,
    ) -> None:
        self._stopping = True
        step = trainer.global_step + 1 if step is None else step
        cause = self._likely_cause(pl_module)
        state = self.folder.checkpoints / "nonfinite.ckpt"
        trainer.save_checkpoint(state)
        last = self.folder.last_checkpoint
        before = f"{last.name} is from before" if last.exists() else "nothing else was saved"
        raise RunStopped(
            f"step {step} (epoch {position(trainer)[0] + 1}) of {pl_module.cfg.method}: {what} is "
            f"not finite. {cause} The state is in {state}, {before}. on_nonfinite=skip leaves such "
            "steps out"
        )

    def _likely_cause(self, pl_module: pl.LightningModule) -> str:
        cfg = pl_module.cfg
        if self._batch is not None:
            views = self._batch[1]
            views = [views] if isinstance(views, Tensor) else views
            if not all(view.isfinite().all() for view in views):
                return "The images already are not: look at mean and std of the augmentations."
        rate = f"the learning rate is too high (optimizer.lr={cfg.optimizer.lr:g} at this batch)"
        help_ = "a lower one, a longer warm-up or gradient_clip_val helps."
        if str(cfg.get("precision", "")).startswith("16"):
            rate = f"a float16 overflow, for which precision=bf16-mixed helps; or {rate}"
        return f"Most likely {rate}: {help_}"
