"""``performance.compile``: torch.compile where it works, else the plain function."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from simco_methods.progress import Progress, duration

# What a training step calls of a model; both hosts have these names.
_FORWARDS = ("forward", "momentum_forward")


def compiled(function: Callable, device: torch.device) -> Callable:
    """``function`` compiled for one static shape; on a GPU with CUDA graphs."""
    # It warns where there is CUDA's compiler and no GPU.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    mode = "reduce-overhead" if device.type == "cuda" else "default"
    return torch.compile(function, dynamic=False, mode=mode)


def compiled_if_possible(function: Callable[..., Tensor], device: torch.device) -> Callable:
    """Like :func:`compiled`, for a function of one result without gradient.

    Should its first call fail, it says so and is the plain function from then on.
    """
    chosen: Callable | None = None

    def call(*args: Any) -> Tensor:
        nonlocal chosen
        if chosen is None:
            try:
                chosen = compiled(function, device)
                with Progress(f"compiling {function.__name__}"):
                    chosen(*args)
            except Exception as error:  # whatever a compiler may raise
                _say(function.__name__, error)
                chosen = function
        result = chosen(*args)
        # A CUDA graph's result is overwritten by its next run.
        return result.clone() if device.type == "cuda" else result

    return call


class CompileForwards(pl.Callback):
    """Compiles the forwards of a method before its first step; see :func:`compile_forwards`."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        cfg = pl_module.cfg
        size = cfg.augmentations[0].crop_size
        shape = (cfg.optimizer.batch_size, 3, size, size)
        images = torch.zeros(shape, device=pl_module.device, dtype=pl_module.dtype)
        if not cfg.performance.disable_channel_last:
            images = images.to(memory_format=torch.channels_last)
        training = pl_module.training
        pl_module.train()
        context = trainer.precision_plugin.train_step_context
        began = time.perf_counter()
        with Progress("compiling the network, before the first step"):
            done = compile_forwards(pl_module, images, context)
        if done and trainer.is_global_zero:
            said = duration(time.perf_counter() - began)
            print(f"  compiled (performance.compile=true) in {said}", flush=True)
        pl_module.train(training)


def compile_forwards(module: nn.Module, images: Tensor, context: Callable[[], Any]) -> bool:
    """Compiles the forwards of a training step, and with them the backward.

    They are tried on ``images`` first: should that fail, it is said and the module is as it was.
    Names and shapes of the state dict do not change, nor do parameters, buffers and random numbers;
    in evaluation mode, where the shapes vary, the forwards are the plain ones.

    Args:
        module: a method, on its device, in training mode.
        images: (N, 3, H, W) of the shape, type and device of the views to come.
        context: gives the context manager of a training step's precision.

    Returns:
        Whether the forwards are compiled now.
    """
    names = [name for name in _FORWARDS if hasattr(module, name)]
    plain = {name: getattr(module, name) for name in names}
    try:
        with _unchanged(module, images.device):
            for name in names:
                setattr(module, name, _in_training(module, plain[name], images.device))
                with context():
                    outputs = getattr(module, name)(images)
                total = sum(value.float().sum() for value in outputs.values())
                if total.requires_grad:
                    parameters = [p for p in module.parameters() if p.requires_grad]
                    torch.autograd.grad(total, parameters, allow_unused=True)
    except Exception as error:  # whatever a compiler may raise
        for name in names:
            vars(module).pop(name, None)
        _say("the network", error)
        return False
    return True


def _in_training(module: nn.Module, plain: Callable, device: torch.device) -> Callable:
    fast = compiled(plain, device)
    overwritten = device.type == "cuda"  # by a CUDA graph's next run

    def call(images: Tensor) -> dict[str, Tensor]:
        if not module.training:
            return plain(images)
        outputs = fast(images)
        if overwritten:
            outputs = {name: value.clone() for name, value in outputs.items()}
        return outputs

    return call


@contextmanager
def _unchanged(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Puts the buffers (batch norm's statistics) and the random state back."""
    before = [buffer.clone() for buffer in module.buffers()]
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(module.buffers(), before, strict=True):
                buffer.copy_(value)


def _say(what: str, error: Exception) -> None:
    reason = str(error).strip().splitlines() or [""]
    print(
        f"performance.compile: {what} cannot be compiled here ({type(error).__name__}: "
        f"{reason[0][:200]}); the run goes on without",
        flush=True,
    )
