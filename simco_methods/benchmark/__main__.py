"""``python -m simco_methods.benchmark {cpu,gpu}``: runs the benchmark and writes its report."""

from __future__ import annotations

import argparse
import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from simco_methods.benchmark import augmentation, epochs, gpu, losses, report, scaling, steps
from simco_methods.benchmark.timing import Comparison
from simco_methods.machine import find_device, hardware

PARTS = {
    "cpu": ("loss", "augmentation", "step", "epoch", "scaling"),
    "gpu": ("equality", "images", "loss", "augmentation", "step", "epoch"),
}
EXTRA = ("compile",)  # minutes of compiling: only if asked for
_GPU_SECONDS = 200.0  # for the runs of the part "images"


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    options = _options(arguments)
    os.environ.setdefault("SIMCO_HOST", "builtin")
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    device = find_device()
    if options.kind == "cpu" and device.type != "cpu":
        raise SystemExit("benchmark cpu: this machine has a GPU; hide it (CUDA_VISIBLE_DEVICES=)")
    print(f"{hardware(device, 1)}, torch {torch.__version__}", flush=True)
    found: list[Comparison] = []
    more: dict[str, dict[str, Any]] = {}
    small = options.quick or (options.kind == "gpu" and device.type == "cpu")
    if small and not options.quick:
        print("there is no GPU: all of it in small, on the CPU; no figure means anything")

    def keep(comparisons) -> None:
        for comparison in comparisons:
            print(comparison, flush=True)
            found.append(comparison)

    def add(name: str, data: object, text: str) -> None:
        print(text, flush=True)
        more[name] = {"data": data, "text": text}

    for part in options.only or PARTS[options.kind]:
        if part == "loss":
            keep(losses.compare(device, small))
        elif part == "augmentation":
            keep(augmentation.compare(device, _folder(options.data, "train"), small))
        elif part == "step":
            keep(steps.compare(device, small))
        elif part == "compile":
            keep(steps.compare_compiled(device, small))
        elif part == "epoch":
            keep(epochs.against_bare_step(options.data, small))
            if options.solo_learn and options.data:
                keep(epochs.against_solo_learn(options.data, options.solo_learn, small))
            else:
                print("solo-learn's main_pretrain.py: left out; it needs SOLO_LEARN and DATA")
        elif part == "scaling":
            rows = [*scaling.measure(device, small), *scaling.measure_processes(small)]
            paper = scaling.on_paper()
            add("scaling", [vars(row) for row in rows], scaling.table(rows))
            add("processes on paper", paper, scaling.paper_table(paper))
        elif part == "equality":
            differences = gpu.equality(device)
            add("equality", differences, gpu.equality_table(differences))
        elif part == "images":
            runs = []
            for run in gpu.runs(_folder(options.data, "train"), _GPU_SECONDS):
                profile = run.pop("profile", None)
                if profile:
                    options.out.mkdir(parents=True, exist_ok=True)
                    (options.out / "profile.txt").write_text(profile, encoding="utf-8")
                    print(profile)
                runs.append(run)
            add("images", runs, gpu.runs_table(runs))
            took = gpu.augmentation_ms(device)
            text = ", ".join(f"{name} {value:.2f} ms" for name, value in took.items())
            add("augmentation", took, f"two views of 256 images on {device}: {text}\n")
    report.write(options.out, device, found, more)
    print(f"see {options.out}")


def _folder(data: str | None, split: str) -> str | None:
    return None if data is None else str(Path(data, split))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simco_methods.benchmark", description=__doc__)
    parser.add_argument("kind", choices=tuple(PARTS))
    parser.add_argument("--only", nargs="+", choices=sorted({*sum(PARTS.values(), ()), *EXTRA}))
    parser.add_argument("--data", help="a folder with class folders under train/ and test/")
    parser.add_argument("--solo-learn", help="a checkout of solo-learn, to compare with its script")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--quick", action="store_true", help="seconds; only to see that it runs")
    options = parser.parse_args(arguments)
    for name in ("data", "solo_learn"):
        value = getattr(options, name)
        if value is not None and not Path(value).is_dir():
            parser.error(f"there is no folder {value}")
        setattr(options, name, value and str(Path(value).resolve()))
    return options


if __name__ == "__main__":
    main()
