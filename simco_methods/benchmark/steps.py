"""Training steps within Lightning: the pack's against those that forward every view everywhere."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator

import lightning.pytorch as pl
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from torch.utils.data import DataLoader

from simco_methods.benchmark.textbook import every_view_through_both
from simco_methods.benchmark.timing import (
    Comparison,
    alternate,
    clock,
    one_thread,
    unit,
    wait,
)
from simco_methods.compiling import CompileForwards
from simco_methods.config.parse import complete, parse
from simco_methods.losses import dual_temperature_loss
from simco_methods.machine import find_device
from simco_methods.methods import METHODS

# Ratios that are aimed at, against every view through both networks.
TARGETS = {"simco": 1.25, "simmoco": 1.4, "mocov2": 1.4}


def parsed(config: str, *overrides: str) -> DictConfig:
    """A leaf of ``solo_configs`` as the model gets it, for short runs."""
    with initialize_config_module(version_base="1.3", config_module="solo_configs"):
        short = ["scheduler.warmup_epochs=0", "max_epochs=1", "knn_eval.enabled=false"]
        composed = compose(config, overrides=[*short, *overrides])
    return parse(complete(composed), world_size=1)


def default_backbone() -> str:
    """ResNet-18 on a GPU, a small network on a CPU."""
    return "resnet18" if torch.cuda.is_available() else "micro_resnet"


class StepTimes(pl.Callback):
    """Milliseconds a step, over all steps but the first ``warmup``."""

    def __init__(self, warmup: int = 2):
        self.warmup, self.milliseconds = warmup, 0.0

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        if batch_idx == self.warmup:
            wait()
            self._start = clock()

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        wait()
        steps = trainer.num_training_batches - self.warmup
        self.milliseconds = 1000 * (clock() - self._start) / steps


def fixed_batch(cfg: DictConfig, device: torch.device) -> list:
    """``[indices, [view, view], labels]`` on the device."""
    count, size = cfg.optimizer.batch_size, cfg.augmentations[0].crop_size
    form = torch.contiguous_format if cfg.performance.disable_channel_last else torch.channels_last
    generator = torch.Generator().manual_seed(0)
    views = [
        torch.randn(count, 3, size, size, generator=generator).to(device, memory_format=form)
        for _ in range(2)
    ]
    labels = (torch.arange(count) % cfg.data.num_classes).to(device)
    return [torch.arange(count), views, labels]


class Stepper:
    """Trains one model on a fixed batch, some steps at a time.

    Args:
        kind: the method's class.
        cfg: a parsed config.
        steps: that are timed in each call, after two that are not.
    """

    def __init__(self, kind: type, cfg: DictConfig, steps: int):
        self.cfg, self.steps = cfg, steps
        torch.manual_seed(0)
        self.model = kind(cfg)
        if not cfg.performance.disable_channel_last:
            self.model.to(memory_format=torch.channels_last)
        batch = fixed_batch(cfg, find_device())
        self.data = DataLoader([batch] * (steps + 2), batch_size=None)
        self.compiler = CompileForwards() if cfg.performance.compile else None

    def __call__(self) -> float:
        """Milliseconds a step."""
        times = StepTimes()
        trainer = pl.Trainer(
            max_epochs=1,
            devices=1,
            callbacks=[times, *([self.compiler] if self.compiler else [])],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            precision=self.cfg.precision,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(self.model, self.data)
        self.compiler = None  # once
        return times.milliseconds


class BareStep:
    """SimCo's step without Lightning, probe, logs and kNN: forwards, loss, backward, SGD.

    Args:
        model: a SimCo, which is copied.
        batch: as of :func:`fixed_batch`.
    """

    def __init__(self, model: pl.LightningModule, batch: list, device: torch.device):
        self.network = copy.deepcopy(torch.nn.Sequential(model.backbone, model.projector))
        self.network.to(device).train()
        self.views = batch[1]
        self.kwargs = model.cfg.method_kwargs
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4
        )
        mixed = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
        self.autocast = mixed.get(model.cfg.precision)
        self.device = device

    def __call__(self) -> None:
        enabled = self.autocast is not None
        with torch.autocast(self.device.type, dtype=self.autocast, enabled=enabled):
            z1, z2 = (
                torch.nn.functional.normalize(self.network(view).float()) for view in self.views
            )
        taus = {"tau_alpha": self.kwargs.tau_alpha, "tau_beta": self.kwargs.tau_beta}
        dual_temperature_loss(z1, z2, **taus, symmetric=True).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def compare(device: torch.device, quick: bool = False) -> Iterator[Comparison]:
    """The three methods, each against itself forwarding every view through both networks."""
    batch, steps, rounds = (16, 2, 1) if quick else (128, 8, 5)
    backbone = default_backbone()
    options = [f"backbone.name={backbone}", f"optimizer.batch_size={batch}"]
    for method, target in TARGETS.items():
        queue = method == "mocov2" and device.type == "cpu"
        # The paper's 65,536 keys would take a third of so small a network's step, on both sides.
        of_method = ["method_kwargs.queue_size=16384"] if queue else []
        cfg = parsed(f"cifar10/{method}", *options, *of_method)
        kinds = METHODS[method], every_view_through_both(METHODS[method])
        lean, every = (Stepper(kind, cfg.copy(), steps) for kind in kinds)
        with one_thread():
            found = _pairs(lean, every, rounds)
        what = f"{method}{' (16,384 keys)' if queue else ''}, {backbone}, batch {batch}"
        what += f", {cfg.precision}"
        other = "every view through both networks"
        yield Comparison("step", what, other, *found, unit(), None if quick else target)


def compare_compiled(device: torch.device, quick: bool = False) -> Iterator[Comparison]:
    """Compiled steps against plain ones."""
    batch, steps, rounds = (16, 2, 1) if quick else (128, 8, 5)
    backbone = default_backbone()
    options = [f"backbone.name={backbone}", f"optimizer.batch_size={batch}"]
    for method in TARGETS:
        both = [
            Stepper(
                METHODS[method],
                parsed(f"cifar10/{method}", *options, f"+performance.compile={flag}"),
                steps,
            )
            for flag in ("true", "false")
        ]
        what = f"{method}, {backbone}, batch {batch}, performance.compile=true"
        with one_thread():
            found = _pairs(*both, rounds)
        yield Comparison("compile", what, "plain", *found, unit())


def _pairs(
    one: Callable[[], float], other: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    one(), other()  # warm up
    return alternate(one, other, rounds)
