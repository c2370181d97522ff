"""``performance.compile`` of a run: the network is compiled when it is on its device."""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from simco_methods.compiling import compile_forwards


class CompileForwards(Callback):
    """Compiles the forwards of the method before its first step; see :func:`compile_forwards`."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        cfg = pl_module.cfg
        size = cfg.augmentations[0].crop_size
        shape = (cfg.optimizer.batch_size, 3, size, size)
        images = torch.zeros(shape, device=pl_module.device, dtype=pl_module.dtype)
        if not cfg.performance.disable_channel_last:
            images = images.to(memory_format=torch.channels_last)
        context = trainer.precision_plugin.train_step_context
        training = pl_module.training
        pl_module.train()
        if compile_forwards(pl_module, images, context) and trainer.is_global_zero:
            print("  compiled (performance.compile=true)", flush=True)
        pl_module.train(training)
