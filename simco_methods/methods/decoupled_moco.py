"""Decoupled MoCo: an own dictionary for the vector and for the scalar component (Eq. 7)."""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from simco_methods.dictionary import ORDERS
from simco_methods.host import LeanMomentumMethod
from simco_methods.losses import decoupled_info_nce_loss
from simco_methods.methods.parts import contrastive_range, keys_of_batch
from simco_methods.methods.queued import QueuedContrast
from simco_methods.methods.settings import method_settings, refuse
from simco_methods.seeds import derived_seed

_COMPONENTS = ("vector", "scalar")
_SETTINGS = {"negatives": ("queue", "batch"), "size": None, "order": ORDERS, "tau": 0.1}


class DecoupledMoCo(QueuedContrast):
    """MoCo whose gradient's two components see different dictionaries (Zhang et al., CVPR 2022,
    https://arxiv.org/abs/2203.17248, section 3).

    The vector component says where an anchor is pulled, the scalar component how hard; each reads
    its keys from the one queue, or is contrasted with the batch. Special cases: MoCo v2 (both the
    whole queue at one temperature), SimMoCo (both the batch), keys of the last iteration against
    those of the current one (``size`` of a batch, ``order: recent``, or ``negatives: batch``).

    Config, ``method_kwargs``:
        proj_hidden_dim, proj_output_dim: widths of the projector, 128 and 128.
        queue_size: keys in the queue (each queue), 65536.
        symmetric: each view is query and key, with one queue a side, false.
        vector, scalar: of each component
            negatives: "queue", or "batch" for the other rows of the batch, of all processes.
            size: how many of the queue's keys, null for all.
            order: which of them: "recent", "earliest" or "random", drawn anew each step.
            tau: its temperature, 0.1: tau_alpha of the vector, tau_beta of the scalar component.
    """

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        cfg = LeanMomentumMethod.add_and_assert_specific_cfg(cfg)
        defaults = {name: dict(_SETTINGS) for name in _COMPONENTS}
        cfg = method_settings(cfg, {"queue_size": 65536, "symmetric": False, **defaults})
        faults = []
        for name in _COMPONENTS:
            settings, path = cfg.method_kwargs[name], f"method_kwargs.{name}"
            largest = cfg.method_kwargs.queue_size
            if settings.size is not None and settings.size > largest:
                faults.append(
                    f"{path}.size={settings.size} is above method_kwargs.queue_size={largest}: "
                    "the queue has no more keys"
                )
            of_queue = settings.size or (settings.order if settings.order != ORDERS[0] else None)
            if settings.negatives == "batch" and of_queue:
                faults.append(
                    f"{path}: {of_queue} says which keys of the queue, but {path}.negatives=batch "
                    "takes the other rows of the batch; leave size and order out"
                )
        refuse(faults)
        return cfg

    @property
    def uses_queue(self) -> bool:
        """Whether a component reads the queue."""
        return any(self.cfg.method_kwargs[name].negatives == "queue" for name in _COMPONENTS)

    def _negatives(self, side: int) -> list[Tensor | None]:
        """The components' dictionaries, None for the batch; one tensor where they are alike."""
        found: dict[tuple, Tensor | None] = {}
        kinds = []
        for name in _COMPONENTS:
            settings = self.cfg.method_kwargs[name]
            kinds.append((settings.negatives, settings.size, settings.order))
            if kinds[-1] not in found:
                in_batch = settings.negatives == "batch"
                found[kinds[-1]] = None if in_batch else self._chosen(side, settings)
        return [found[kind] for kind in kinds]

    def _chosen(self, side: int, settings: DictConfig) -> Tensor:
        queue = self.queues[side]
        size = settings.size or len(queue)
        generator = None
        if settings.order == "random":
            # A function of the step: the same on all processes, and after a resume.
            step = (self.cfg.get("seed", 0), self.current_epoch, self._batch_idx)
            generator = torch.Generator().manual_seed(derived_seed(*step, side, size))
        return queue.select(size, settings.order, generator)

    def training_step(self, batch: list[Any], batch_idx: int) -> Tensor:
        """The contrastive loss plus the probes'; what is drawn depends on the batch's number."""
        self._batch_idx = batch_idx
        return super().training_step(batch, batch_idx)

    def contrast(self, query: Tensor, key: Tensor, side: int) -> Tensor:
        """Eq. 7 of the queries against the components' dictionaries."""
        kwargs = self.cfg.method_kwargs
        all_keys = self.keep(key)
        negatives = self._negatives(side)
        if side == 0:
            self._scalar_negatives = negatives[1]
        taus = kwargs.vector.tau, kwargs.scalar.tau
        in_batch = any(bank is None for bank in negatives)
        gathered = keys_of_batch(key, all_keys) if in_batch else {}
        return decoupled_info_nce_loss(query, key, *negatives, *taus, **gathered)

    def log_contrast(self, loss: Tensor, query: Tensor, key: Tensor) -> None:
        tau = self.cfg.method_kwargs.scalar.tau
        self.log_contrastive(loss, query, key, self._scalar_negatives, tau)

    def negatives_per_anchor(self, batch: int) -> str:
        """Negatives of an anchor in each component."""
        counts = self._negatives_of_components(batch)
        return " and ".join(
            f"{count} ({name})" for name, count in zip(_COMPONENTS, counts, strict=True)
        )

    def _negatives_of_components(self, batch: int) -> tuple[int, int]:
        counts = []
        for name in _COMPONENTS:
            settings = self.cfg.method_kwargs[name]
            queued = settings.size or self.cfg.method_kwargs.queue_size
            counts.append(batch - 1 if settings.negatives == "batch" else queued)
        return tuple(counts)

    def loss_range(self, batch: int) -> tuple[float, float] | None:
        kwargs = self.cfg.method_kwargs
        taus = kwargs.vector.tau, kwargs.scalar.tau
        return contrastive_range(self._negatives_of_components(batch), *taus)
