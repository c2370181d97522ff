"""The analyses while a method trains, as a Lightning callback: of the pack's or of solo-learn's."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from simco_methods.analysis import consistency, geometry, gradient, hardness, penalty
from simco_methods.analysis.encoder import Network
from simco_methods.analysis.finding import Rows, near
from simco_methods.analysis.history import write_history
from simco_methods.analysis.samples import scalar_temperature
from simco_methods.analysis.stored import AGES, Stored, spaced
from simco_methods.analysis.sweep import default_sizes, sweep_dictionary
from simco_methods.config.checks import as_list
from simco_methods.config.during import DURING, DURING_DEFAULTS
from simco_methods.dictionary import KeyQueue
from simco_methods.files import user_path
from simco_methods.losses import l2_normalize

_PROBE = 64  # images that the encoder is asked about again and again
_GRADIENTS = (64, 1024)  # anchors and keys of the gradient check


def check_projector(model: pl.LightningModule) -> None:
    """Raises ``ValueError`` for a method that has no embeddings to analyse."""
    if not isinstance(getattr(model, "projector", None), nn.Module):
        raise ValueError(
            "analysis.enabled=true: the analyses are of embeddings behind a projector, which "
            f"{model.cfg.method} has not"
        )


class DuringTraining(pl.Callback):
    """Measures every n-th batch what ``simco-analyze`` measures on a checkpoint.

    A step is a batch here, also where several are accumulated to one optimiser step.
    The embeddings are those of the training step itself, taken at the projector's output, so they
    cost no forward; the dictionary is the callback's own queue of the keys of earlier batches. The
    consistency of keys takes one small forward in evaluation mode. Nothing of the training changes:
    no random number is drawn, no buffer written. Only the first process measures, on its own share.

    It runs as ``analysis.enabled=true`` says, with the keys of
    :data:`~simco_methods.config.during.DURING`, in ``simco-pretrain`` and in solo-learn's
    ``main_pretrain.py``; results are written after every epoch.

    Args:
        cfg: the run's config.
        folder: where to write; None for a folder ``analysis`` beside solo-learn's checkpoints.

    Raises:
        ValueError: a setting out of range, by name.
    """

    def __init__(self, cfg: DictConfig, folder: Path | None = None):
        given = OmegaConf.select(cfg, "analysis")
        settings = {**DURING_DEFAULTS, **(OmegaConf.to_container(given) if given else {})}
        for key, value in settings.items():
            if key not in DURING:
                raise ValueError(f"analysis.{key} is unknown; there are {', '.join(DURING)}")
            allowed = DURING[key](value)
            if allowed:
                raise ValueError(f"analysis.{key}={value!r}: must be {allowed}")
        self.every: int = settings["every_n_steps"]
        self.capacity: int = settings["keys"]
        self.temperatures: list[float] = sorted(set(as_list(settings["temperatures"])))
        sizes = settings["sizes"] or default_sizes(self.capacity)
        self.sizes: list[int] = sorted(set(as_list(sizes)))
        if self.sizes[-1] > self.capacity:
            raise ValueError(
                f"analysis.sizes has {self.sizes[-1]}, above analysis.keys={self.capacity}"
            )
        self.tau = scalar_temperature(cfg)
        self.name: str = cfg.get("name", "run")
        self.folder = user_path(settings["folder"]) if settings["folder"] else folder
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.batches = 0
        self._queue: KeyQueue | None = None
        self._probe: Tensor | None = None
        self._stored: list[tuple[int, Tensor]] = []  # (batches before it, keys of the probe)
        self._heard: dict[str, list[Tensor]] = {}
        self._hooks: list[Any] = []
        self._restored: dict[str, Tensor] | None = None

    # ---- listening -------------------------------------------------------------------------------

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        check_projector(pl_module)
        if not trainer.is_global_zero:
            return
        for name in ("projector", "momentum_projector"):
            module = getattr(pl_module, name, None)
            if isinstance(module, nn.Module):
                self._hooks.append(module.register_forward_hook(self._listener(name)))

    def _listener(self, name: str):
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            if name in self._heard:
                self._heard[name].append(output.detach())

        return hook

    def on_train_batch_start(self, trainer, pl_module, batch: Any, batch_idx: int) -> None:
        self._heard = {"projector": [], "momentum_projector": []}

    def on_train_batch_end(self, trainer, pl_module, outputs, batch: Any, batch_idx: int) -> None:
        heard, self._heard = self._heard, {}
        if not trainer.is_global_zero or not heard["projector"]:
            return
        # View 1 asks; the answer is of view 2, all that a one-sided method forwards for its keys.
        answers = heard["momentum_projector"] or heard["projector"]
        query = l2_normalize(heard["projector"][0])
        key = l2_normalize(answers[min(1, len(answers) - 1)])
        if self._queue is None:
            self._begin(key, batch)
        self.batches += 1
        if self.batches % self.every == 0:
            self._measure(pl_module, query, key)
        self._queue.enqueue(key)

    def _begin(self, key: Tensor, batch: Any) -> None:
        with torch.random.fork_rng(devices=[]):  # the queue's first vectors are drawn
            self._queue = KeyQueue(self.capacity, key.shape[1]).to(key.device)
        if self._restored is not None:
            self._queue.load_state_dict(self._restored)
        if self._probe is None:
            # Half precision: it is saved with every checkpoint.
            self._probe = batch[1][1][:_PROBE].detach().to("cpu", torch.float16)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # ---- measuring -------------------------------------------------------------------------------

    @torch.no_grad()
    def _measure(self, module: pl.LightningModule, query: Tensor, key: Tensor) -> None:
        newest = self._queue.slots(self.capacity, "recent")
        filled = min(self.capacity, int(self._queue.filled.sum()))
        dictionary = self._queue.keys[newest[:filled]]
        if query.device.type == "mps":  # it has no float64
            query, key, dictionary = query.cpu(), key.cpu(), dictionary.cpu()
        sizes = [size for size in self.sizes if size <= filled]
        found: dict[str, Rows] = {"geometry": [geometry.measure(query, key)]}
        if sizes:
            temperatures = self.temperatures
            sweep = sweep_dictionary(query, key, dictionary, sizes, temperatures)
            found["penalty"] = penalty.measure(sweep, group=len(query))
            found["hardness"] = hardness.measure(sweep.hardness[:, -1], temperatures)
            anchors, keys = _GRADIENTS
            found["gradient"] = gradient.measure(
                query[:anchors], key[:anchors], dictionary[:keys], temperatures
            )[0]
        stored = self._drift(module)
        if stored:
            found["consistency"] = consistency.by_age(stored)
            found["orders"] = consistency.by_order(stored, same_views=True)
        for name, rows in found.items():
            before = self.rows.setdefault(name, [])
            before += [{"step": self.batches, **row} for row in rows]
        module.log_dict(self._scalars(found), on_step=True, on_epoch=False, rank_zero_only=True)

    def _scalars(self, found: dict[str, Rows]) -> dict[str, float]:
        scalars = {}
        if "penalty" in found:
            largest = near(found["penalty"], "temperature", self.tau)[-1]
            scalars["analysis_penalty_entropy"] = largest["anchor_entropy"]
            scalars["analysis_hardness_std"] = largest["hardness_std"]
        if "consistency" in found:
            scalars["analysis_key_cosine"] = found["consistency"][0]["cosine"]
        return scalars

    def _drift(self, module: pl.LightningModule) -> list[Stored]:
        """The probe's earlier keys against today's."""
        momentum = isinstance(getattr(module, "momentum_projector", None), nn.Module)
        prefix = "momentum_" if momentum else ""
        network = Network(*(getattr(module, prefix + name) for name in ("backbone", "projector")))
        modes = [(part, part.training) for part in network.modules()]
        weight = next(network.parameters())
        images = self._probe.to(weight.device, weight.dtype)
        # In evaluation mode the running statistics stay as they are.
        today = network.eval()(images)[1].cpu()
        for part, training in modes:
            part.training = training
        groups = [Stored(self.batches - made, keys, today) for made, keys in spaced(self._stored)]
        self._stored.append((self.batches, today))
        if len(self._stored) > 4 * AGES:
            self._stored = self._stored[::2]  # a long run keeps the first, and the newer ones
        return groups

    # ---- keeping ---------------------------------------------------------------------------------

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._write(trainer, figures=False)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero and not self.rows:
            warnings.warn(
                f"no analysis was made: the run had {self.batches} batches, "
                f"analysis.every_n_steps={self.every}",
                stacklevel=2,
            )
        self._write(trainer, figures=True)

    def _write(self, trainer: pl.Trainer, figures: bool) -> None:
        if not trainer.is_global_zero or not self.rows:
            return
        folder = self.folder or _beside_checkpoints(trainer) or Path("analysis") / self.name
        write_history(folder, self.name, self.rows, self.tau, figures)
        if figures:
            print(f"analyses during training: {folder / 'report.html'}", flush=True)

    def state_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "batches": self.batches,
            "queue": None if self._queue is None else self._queue.state_dict(),
            "probe": self._probe,
            "stored": self._stored,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self.batches = state["rows"], state["batches"]
        self._probe, self._stored = state["probe"], list(state["stored"])
        queue = state["queue"]
        same = queue is not None and len(queue["keys"]) == self.capacity
        self._restored = queue if same else None


def _beside_checkpoints(trainer: pl.Trainer) -> Path | None:
    for callback in trainer.callbacks:
        path = getattr(callback, "path", None)
        if type(callback).__name__ == "Checkpointer" and path:
            return Path(path) / "analysis"
    return None
