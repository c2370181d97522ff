"""What a GPU has to show, in minutes: equality with the CPU, where a step's time goes, images/s.

On a machine without a GPU the same runs in small, on its CPU, to see that it does run.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf, open_dict
from torch.profiler import ProfilerActivity, profile

from simco_methods.benchmark.augmentation import on_device, paper_view, pictures
from simco_methods.benchmark.losses import ours, pair
from simco_methods.benchmark.steps import TARGETS, fixed_batch, parsed
from simco_methods.benchmark.timing import clock, milliseconds, wait
from simco_methods.data.images import ImageSet
from simco_methods.methods import METHODS
from simco_methods.page import markdown_table
from simco_methods.runner.train import prepare

CIFAR, EPOCHS = 50_000, 200


def equality(device: torch.device) -> dict[str, float]:
    """Largest relative difference between CPU and GPU: loss, gradients, a step, augmented views.

    In float32 without TF32, so that only the order of sums differs.
    """
    tf32 = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    found: dict[str, float] = {}
    for count in (256, 2048):
        results = []
        for where in (torch.device("cpu"), device):
            sides = pair(count, where)
            loss = ours(*sides)
            loss.backward()
            results.append([loss.detach().cpu(), *(side.grad.cpu() for side in sides)])
        found[f"loss, N = {count}"] = _largest(*zip(*(r[:1] for r in results), strict=True))
        found[f"its gradients, N = {count}"] = _largest(
            *zip(*(r[1:] for r in results), strict=True)
        )
    for method in TARGETS:
        cfg = parsed(f"cifar10/{method}", "optimizer.batch_size=32", "precision=32-true")
        torch.manual_seed(0)
        model = METHODS[method](cfg)
        grads = []
        for where in (torch.device("cpu"), device):
            net = copy.deepcopy(model).to(where).train()
            net.training_step(fixed_batch(cfg, where), 0).backward()
            grads.append([p.grad.cpu() for p in net.parameters() if p.grad is not None])
        found[f"gradients of a step, {method}"] = _largest(*zip(*grads, strict=True))
    view = OmegaConf.merge(paper_view(), {"num_crops": 2})
    views = [
        on_device(pictures(None, 512), view, where)()[1][0].cpu()
        for where in (torch.device("cpu"), device)
    ]
    # Normalised views have a standard deviation of a quarter of the range.
    mean = float((views[0] - views[1]).abs().mean())
    found["augmented views, mean difference in 255ths"] = 255 * 0.25 * mean
    torch.backends.cudnn.allow_tf32 = tf32
    return found


def equality_table(found: dict[str, float]) -> str:
    """:func:`equality`, as Markdown."""
    lines = [["CPU against this device", "relative difference"]]
    return markdown_table(lines + [[what, f"{value:.1e}"] for what, value in found.items()])


def _largest(*pairs: tuple[torch.Tensor, torch.Tensor]) -> float:
    return max(float((a - b).norm() / a.norm().clamp(min=1e-12)) for a, b in pairs)


def throughput(
    method: str,
    images: ImageSet,
    batches: int,
    batch: int,
    *,
    compiled: bool = False,
    loader: str = "device",
    profiled: bool = False,
) -> dict[str, Any]:
    """Images/s of ``simco-pretrain``'s second epoch, and what 200 epochs of CIFAR would take
    without validation.

    Args:
        method: of the CIFAR-10 configs, in bf16-mixed on a GPU.
        images: to train on.
        batches: an epoch.
        batch: size.
        compiled: ``performance.compile``.
        loader: ``data.loader``.
        profiled: whether to profile a third epoch.
    """
    on_gpu = torch.cuda.is_available()
    chosen = [
        f"optimizer.batch_size={batch}",
        f"precision={'bf16-mixed' if on_gpu else '32-true'}",
        f"max_epochs={3 if profiled else 2}",
        "scheduler.warmup_epochs=0",
        *([] if on_gpu else ["backbone.name=micro_resnet"]),
    ]
    with initialize_config_module(version_base="1.3", config_module="solo_configs"):
        cfg = compose(f"cifar10/{method}", overrides=chosen)
    with tempfile.TemporaryDirectory() as out, open_dict(cfg):
        cfg.output_dir, cfg.limit_train_batches = out, batches
        cfg.data.loader, cfg.data.num_workers = loader, 16 if on_gpu else 2
        cfg.performance = {"compile": compiled}
        cfg.knn_eval.offline = False
        run = prepare(cfg, (images, None))
        profiler = _Profile() if profiled else None
        if profiler:
            run.trainer.callbacks.insert(0, profiler)
        run.fit()
    rate = run.recorder.history[1]["images_per_second"]
    found = {
        "method": method,
        "loader": loader,
        "compiled": compiled,
        "images_per_second": rate,
        "seconds_of_200_epochs": EPOCHS * CIFAR / rate,
    }
    if profiler:
        found["profile"] = profiler.table
    return found


class _Profile(pl.Callback):
    """Profiles the steps of the third epoch."""

    table = ""

    def on_train_epoch_start(self, trainer, pl_module) -> None:
        if trainer.current_epoch == 2:
            kinds = [ProfilerActivity.CPU]
            kinds += [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            self.profile = profile(activities=kinds)
            self.profile.start()

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        if trainer.current_epoch == 2:
            wait()
            self.profile.stop()
            key = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
            averages = self.profile.key_averages()
            self.table = averages.table(sort_by=key, row_limit=20, max_name_column_width=50)


def runs(folder: str | None, limit: float) -> Iterator[dict[str, Any]]:
    """:func:`throughput` of all that is asked, as long as ``limit`` seconds last."""
    on_gpu = torch.cuda.is_available()
    count, batches, batch = (CIFAR, 100, 256) if on_gpu else (512, 4, 32)
    images = pictures(folder, count)
    start = clock()
    kinds = [
        ("simco", {"profiled": True}),
        ("simco", {"compiled": True}),
        ("simco", {"loader": "workers"}),
        *((method, {}) for method in ("simmoco", "mocov2")),
        *((method, {"compiled": True}) for method in ("simmoco", "mocov2")),
        *((method, {"loader": "workers"}) for method in ("simmoco", "mocov2")),
    ]
    if not on_gpu:
        kinds = kinds[:3]
    for method, options in kinds:
        if clock() - start > limit:
            print(f"{method}, {options}: left out, {limit:.0f} s are over", flush=True)
            continue
        yield throughput(method, images, batches, batch, **options)


def augmentation_ms(device: torch.device) -> dict[str, float]:
    """Milliseconds for two views of 256 images, plain and compiled."""
    view = OmegaConf.merge(paper_view(), {"num_crops": 2})
    found = {}
    for name, compiled in (("plain", False), ("compiled", True)):
        make = on_device(pictures(None, 4096), view, device, compiled)
        milliseconds(make, 3)  # warm up
        found[name] = milliseconds(make, 30)
    return found


def runs_table(runs_: list[dict[str, Any]]) -> str:
    """A Markdown table of the runs."""
    lines = [["method", "loader", "compiled", "images/s", "200 epochs of CIFAR, s"]]
    for run in runs_:
        values = f"{run['images_per_second']:,.0f}", f"{run['seconds_of_200_epochs']:,.0f}"
        lines.append([run["method"], run["loader"], str(run["compiled"]).lower(), *values])
    return markdown_table(lines)
