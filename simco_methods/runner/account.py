"""What a run says of itself: when it begins, in its summary, when it ends."""

from __future__ import annotations

import datetime
import statistics
from typing import TYPE_CHECKING, Any

from simco_methods.data.decode import shell_word
from simco_methods.data.draws import ViewSettings
from simco_methods.evaluation.accuracy import chance_note
from simco_methods.host import HOST
from simco_methods.machine import peak_memory_mib, versions
from simco_methods.measures import explained, in_percent, name_of, no_top5
from simco_methods.runner.finite import FiniteGuard
from simco_methods.runner.folder import RunFolder
from simco_methods.runner.notes import notes, shorter_side
from simco_methods.runner.plots import LOSSES

if TYPE_CHECKING:
    from simco_methods.runner.train import Run


def introduction(run: Run) -> list[str]:
    """What is said of a run before it trains, a line each."""
    cfg, model, data = run.model.cfg, run.model, run.data
    size, accumulated = cfg.optimizer.batch_size, cfg.accumulate_grad_batches
    batch = size * run.world_size
    parameters = sum(p.numel() for p in model.backbone.parameters()) / 1e6
    negatives = ""
    if hasattr(model, "negatives_per_anchor"):  # not with solo-learn's own methods
        negatives = f", {model.negatives_per_anchor(batch)} negatives per anchor"
    lines = [
        f"{cfg.name}: {cfg.method} on {cfg.data.dataset}, {cfg.backbone.name} "
        f"({parameters:.1f} M parameters), host {HOST}, seed {cfg.seed}",
        f"  {len(data.train)} training images, {len(data.val) if data.val else 'none'} to "
        f"validate on; {run.hardware}",
        f"  effective batch {batch * accumulated} ({size} x {run.world_size} process(es) x "
        f"{accumulated} accumulated), learning rate {model.lr:.3g}{negatives}",
        f"  {data.loader}",
        f"  folder {run.folder.path}",
    ]
    measures = _measures(run)
    lines += [f"  {line}" for line in explained(measures)]
    lines += [f"  {line}" for line in (no_top5(model.num_classes) if measures else [])]
    if cfg.debug_augmentations:
        lines += [f"  {ViewSettings.from_config(view)}" for view in cfg.augmentations]
    said = notes(
        cfg,
        train_images=len(data.train),
        world_size=run.world_size,
        pixels=shorter_side(data.train),
    )
    lines += [f"  note: {line}" for line in (*dict.fromkeys(run.left_out), *said)]
    if run.resume:
        lines.append(f"  continues from {run.resume}")
    return lines


def _measures(run: Run) -> list[str]:
    """Keys of the accuracies that a run will have."""
    knn = run.cfg.knn_eval
    # solo-learn's own methods have a probe always.
    if run.data.val is None or not getattr(run.model, "has_probe", True):
        return []
    keys = ["val_acc1"]
    if knn.enabled:
        keys.append("val_knn_acc1")
        keys += ["knn_acc1", "untrained_knn_acc1"] if knn.offline else []
    return keys


def summary_of(run: Run, trained: dict[str, float], started: float) -> dict[str, Any]:
    """The content of summary.json.

    Args:
        run: that has been trained.
        trained: offline kNN accuracies.
        started: time in seconds since the epoch.
    """
    cfg, recorder = run.cfg, run.recorder
    last = recorder.history[-1]
    return {
        "name": cfg.name,
        "method": cfg.method,
        "symmetric": bool(cfg.method_kwargs.get("symmetric", cfg.method == "simco")),
        "dataset": cfg.data.dataset,
        "backbone": cfg.backbone.name,
        "seed": cfg.seed,
        "epochs": len(recorder.history),
        "fingerprint": run.folder.fingerprint,
        "host": HOST,
        # Of the last epoch, never of the best one.
        "last_epoch": {k: v for k, v in last.items() if k.startswith(("train_", "val_"))},
        **trained,
        **{f"untrained_{name}": value for name, value in recorder.untrained.items()},
        "seconds": round(recorder.seconds, 1),
        "images_per_second": statistics.median(r["images_per_second"] for r in recorder.history),
        "peak_memory_mib": peak_memory_mib(run.trainer.strategy.root_device),
        "processes": run.world_size,
        "steps_left_out": run.callback(FiniteGuard).skipped,
        "loader": "workers" if run.data.resident is None else "device",
        "compiled": cfg.performance.compile,
        "hardware": run.hardware,
        "versions": versions(),
        "started": datetime.datetime.fromtimestamp(started).isoformat(timespec="seconds"),
    }


def chance_notes(run: Run, summary: dict[str, Any]) -> list[str]:
    """A line for each accuracy that is by chance; none where training has warned of a collapse."""
    watch = getattr(run.model, "_watch", None)
    if watch is not None and watch.state()["warned"]:
        return []
    figures = {**summary["last_epoch"], **summary}
    return [
        f"note: {note}"
        for key in ("val_acc1", "knn_acc1")
        if key in figures
        for note in chance_note(name_of(key), figures[key], run.model.num_classes)
    ]


def finished_before(folder: RunFolder) -> list[str]:
    """What is said where a run that is to be trained has been finished, a line each."""
    lines = [f"{folder.path} is finished: nothing is trained"]
    changed = folder.changed_settings()
    if changed:
        lines.append(f"  without effect on a finished run: {', '.join(changed)}")
    checkpoint = folder.last_checkpoint
    analysed = (folder.path / "analysis").exists() or not checkpoint.is_file()
    if folder.cfg.analysis.enabled and not analysed:
        lines.append(f"  it was not analysed: simco-analyze {shell_word(checkpoint)}")
    return [*lines, "  to train anew, set output_dir=FOLDER or remove that folder"]


def closing(summary: dict[str, Any], folder: RunFolder) -> str:
    """The line that ends a run."""
    last = summary["last_epoch"]
    parts = [f"loss {last[name]:.4f}" for name in LOSSES if name in last]
    parts += in_percent({**last, **summary}, ("val_acc1", "knn_acc1", "untrained_knn_acc1"))
    return (
        f"finished {summary['name']} in {summary['seconds']:.0f} s: {', '.join(parts)}; "
        f"see {folder.path}"
    )
