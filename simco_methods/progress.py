"""Where in its training a trainer of Lightning's is."""

from __future__ import annotations

import lightning.pytorch as pl


def position(trainer: pl.Trainer) -> tuple[int, int]:
    """Epochs that are done, and batches of the next one that are."""
    loop = trainer.fit_loop
    epochs = loop.epoch_progress.current
    if epochs.processed == epochs.ready:
        return epochs.processed, 0
    return epochs.processed, loop.epoch_loop.batch_progress.current.completed
