"""How a run ends before its end: on a signal, and what is said of it."""

from __future__ import annotations

import signal
import threading
from typing import Any

import lightning.pytorch as pl
import torch

from simco_methods.runner.rank import process_rank

MENDED = "when that is mended, the same command goes on from the last checkpoint"
_AGREE_EVERY = 10  # batches at most, of several processes


class RunStopped(RuntimeError):
    """A run that had to end, for a reason that its message tells; what it had saved is whole."""


class Interrupted(KeyboardInterrupt):
    """A run that was told to end by a signal, and can be continued.

    Attributes:
        code: the exit status that shells expect of such an end, 128 + the signal's number.
    """

    def __init__(self, message: str, signum: int = signal.SIGINT):
        super().__init__(message)
        self.code = 128 + signum


class StopOnSignal(pl.Callback):
    """Ends a run on SIGTERM, SIGUSR1 or Ctrl-C where its state is whole: after the optimiser step,
    or after the validation, that it is in. Processes end together; a second Ctrl-C ends at once.

    It ends as Lightning does on SIGTERM, by an exception that callbacks see.

    Attributes:
        signum: what it was told by, 0 for nothing yet.
    """

    def __init__(self):
        self.signum = 0

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # What Lightning is about to register would talk to the other processes from within the
        # handler, wherever they are: they can wait for each other for ever.
        trainer._signal_connector._sigterm_notifier_fn = self._on_signal

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if threading.current_thread() is threading.main_thread():
            # Lightning puts the former handlers back at the end.
            for name in ("SIGTERM", "SIGUSR1", "SIGINT"):
                signum = getattr(signal, name, None)
                if signum and signal.getsignal(signum) is not signal.SIG_IGN:
                    signal.signal(signum, self._on_signal)

    def _on_signal(self, signum: int, frame: Any) -> None:
        if signum == self.signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.signum = signum
        if signum == signal.SIGINT and process_rank() == 0:
            print("Ctrl-C: saves as soon as it can and ends; once more ends at once", flush=True)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        done, accumulated = batch_idx + 1, trainer.accumulate_grad_batches
        if done % accumulated == 0 and done < trainer.num_training_batches:
            if trainer.world_size == 1 or done // accumulated % self._every(trainer) == 0:
                self._stop_if_told(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop_if_told(trainer)

    @staticmethod
    def _every(trainer: pl.Trainer) -> int:
        return min(_AGREE_EVERY, trainer.log_every_n_steps or _AGREE_EVERY)

    def _stop_if_told(self, trainer: pl.Trainer) -> None:
        if trainer.world_size > 1:
            told = torch.tensor(self.signum, device=trainer.strategy.root_device)
            self.signum = int(trainer.strategy.reduce(told, reduce_op="max"))
        if self.signum:
            # Lightning's loops read this where a batch, or an epoch, is done with.
            trainer._signal_connector.received_sigterm = True
