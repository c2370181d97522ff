"""Benchmarks of the analyses: both sides in one run, with their ratio.

python -m simco_methods.benchmark.analyses sweep [--anchors 4096 --keys 65536]
python -m simco_methods.benchmark.analyses callback [--batch 256 --steps 50 --rounds 3]

``sweep``: the entropies of all dictionary sizes and temperatures, tile by tile, against the plain
way (the whole similarity matrix, anew for each size and temperature); time and peak memory, each
side in a process of its own. ``callback``: one training, in turns with and without measurements.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import lightning.pytorch as pl
import torch
from hydra import compose, initialize_config_module
from torch.utils.data import DataLoader

from simco_methods.analysis.during import DuringTraining
from simco_methods.analysis.sweep import sweep_dictionary
from simco_methods.benchmark.timing import clock, unit, wait
from simco_methods.config.parse import complete, parse
from simco_methods.losses import l2_normalize
from simco_methods.machine import find_device, hardware, peak_memory_mib, versions
from simco_methods.methods import METHODS

TEMPERATURES = (0.02, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0, 2.0)
SIZES = (256, 1024, 4096, 16384, 65536)


# ---- sweep ---------------------------------------------------------------------------------------


def plain_way(query, key, dictionary, sizes, temperatures):
    """W and the negatives' entropies as one would write them down, (T, S, N) each."""
    hardness, entropies = [], []
    for tau in temperatures:
        for size in sizes:
            similarity = query @ dictionary[:size].T / tau
            positive = (query * key).sum(dim=1) / tau
            hardness.append(torch.sigmoid(torch.logsumexp(similarity, dim=1) - positive))
            weights = torch.softmax(similarity, dim=1)
            entropy = torch.special.entr(weights).sum(dim=1)
            entropies.append(entropy / torch.log(torch.tensor(float(size))))
    shape = (len(temperatures), len(sizes), len(query))
    return torch.stack(hardness).view(shape), torch.stack(entropies).view(shape)


def one_side(side: str, anchors: int, keys: int, out: str) -> None:
    """Measures one side in this process and saves what it found."""
    device = find_device()
    generator = torch.Generator().manual_seed(0)
    query = l2_normalize(torch.randn(anchors, 128, generator=generator)).to(device)
    noise = torch.randn(anchors, 128, generator=generator).to(device)
    key = l2_normalize(query + 0.05 * noise)
    dictionary = l2_normalize(torch.randn(keys, 128, generator=generator)).to(device)
    sizes = [size for size in SIZES if size <= keys] or [keys]
    before = peak_memory_mib(device)
    wait()
    start = time.perf_counter()
    if side == "tiles":
        sweep = sweep_dictionary(query, key, dictionary, sizes, TEMPERATURES)
        found = sweep.hardness, sweep.negative_entropy
    else:
        found = plain_way(query, key, dictionary, sizes, TEMPERATURES)
    wait()
    seconds = time.perf_counter() - start
    torch.save([part.double().cpu() for part in found], out)
    peak = peak_memory_mib(device)
    print(json.dumps({"seconds": seconds, "peak": peak, "added": peak - before}))


def sweep(anchors: int, keys: int) -> None:
    """Both sides, their ratio, and that they agree."""
    device = find_device()
    print(f"{anchors} anchors x {keys} keys x {len(TEMPERATURES)} temperatures, sizes {SIZES}")
    print(f"{hardware(device, 1)}, torch {torch.__version__}")
    measured: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in ("tiles", "plain"):
            out = str(Path(folder, side))
            command = [sys.executable, "-m", __spec__.name, "side", side, str(anchors), str(keys)]
            done = subprocess.run([*command, out], check=True, capture_output=True, text=True)
            measured[side] = json.loads(done.stdout.splitlines()[-1])
            line = "{}: {seconds:.1f} s, peak {peak:.0f} MiB, of which {added:.0f} for the sweep"
            print(line.format(side, **measured[side]), flush=True)
        pairs = zip(*(torch.load(Path(folder, side)) for side in measured), strict=True)
        errors = [(ours - theirs).abs().max().item() for ours, theirs in pairs]
    tiles, plain = measured["tiles"], measured["plain"]
    ratios = [plain[name] / tiles[name] for name in ("seconds", "peak")]
    print("plain / tiles: time {:.1f}, peak memory {:.1f}".format(*ratios))
    print(f"largest difference: W {errors[0]:.1e}, entropy {errors[1]:.1e}")


# ---- callback ------------------------------------------------------------------------------------


class _Turns(pl.Callback):
    """Blocks of ``steps`` batches, in turns without and with a callback.

    Attributes:
        seconds: of each block, without (False) and with (True); on a CPU of processor time, which
            other processes hardly change.
        inside: seconds that were spent in the callback itself, of each block with it.
    """

    def __init__(self, inner: DuringTraining, steps: int):
        self.inner, self.steps = inner, steps
        self.seconds: dict[bool, list[float]] = {False: [], True: []}
        self.inside: list[float] = []

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.inner.on_fit_start(trainer, pl_module)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        if batch_idx % self.steps == 0:
            wait()
            self._start, self._inside = clock(), 0.0
        if self._on(batch_idx):
            self.inner.on_train_batch_start(trainer, pl_module, batch, batch_idx)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if self._on(batch_idx):
            wait()
            start = clock()
            self.inner.on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
            wait()
            self._inside += clock() - start
        if batch_idx % self.steps == self.steps - 1:
            wait()
            self.seconds[self._on(batch_idx)].append(clock() - self._start)
            if self._on(batch_idx):
                self.inside.append(self._inside)

    def _on(self, batch_idx: int) -> bool:
        return batch_idx // self.steps % 2 == 1


def callback(method: str, backbone: str, batch: int, steps: int, rounds: int) -> float:
    """Prints and returns the time of a step with the measurements over that without."""
    with initialize_config_module(version_base="1.3", config_module="solo_configs"):
        composed = compose(
            f"cifar10/{method}",
            overrides=[
                f"backbone.name={backbone}",
                f"optimizer.batch_size={batch}",
                "knn_eval.enabled=false",
                "scheduler.warmup_epochs=0",
                "max_epochs=1",
                "analysis.enabled=true",
                f"analysis.every_n_steps={steps}",
            ],
        )
    config = parse(complete(composed), world_size=1)
    turns = _Turns(DuringTraining(config), steps)
    blocks = 2 * rounds + 2  # the first pair warms up
    views = [torch.randn(batch, 3, 32, 32) for _ in range(2)]
    data = [[torch.arange(batch), views, torch.arange(batch) % 10]] * (blocks * steps)
    trainer = pl.Trainer(
        max_epochs=1,
        callbacks=[turns],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        precision=config.precision,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(METHODS[method](config), DataLoader(data, batch_size=None))
    off, on = (median(turns.seconds[side][1:]) / steps for side in (False, True))
    print(f"{method}, {backbone}, batch {batch}, measured every {steps} steps, {rounds} rounds")
    print(f"{hardware(find_device(), 1)}, torch {versions()['torch']}, {turns.inner.capacity} keys")
    print(f"a step without {1000 * off:.2f} {unit()}, with {1000 * on:.2f}: ratio {on / off:.4f}")
    inside = median(turns.inside[1:]) / steps
    print(f"in the callback itself {1000 * inside:.2f} {unit()} a step: {100 * inside / off:.2f} %")
    return on / off


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    sweeping = commands.add_parser("sweep")
    sweeping.add_argument("--anchors", type=int, default=4096)
    sweeping.add_argument("--keys", type=int, default=65536)
    calling = commands.add_parser("callback")
    calling.add_argument("--method", default="mocov2", choices=list(METHODS))
    calling.add_argument(
        "--backbone", default="resnet18" if torch.cuda.is_available() else "micro_resnet"
    )
    calling.add_argument("--batch", type=int, default=256)
    calling.add_argument("--steps", type=int, default=50)
    calling.add_argument("--rounds", type=int, default=3)
    side = commands.add_parser("side")  # what ``sweep`` starts
    side.add_argument("side", choices=("tiles", "plain"))
    side.add_argument("anchors", type=int)
    side.add_argument("keys", type=int)
    side.add_argument("out")
    options = vars(parser.parse_args())
    {"sweep": sweep, "callback": callback, "side": one_side}[options.pop("command")](**options)


if __name__ == "__main__":
    main()
