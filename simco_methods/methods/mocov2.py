"""MoCo v2 and MoCo v2+: a momentum encoder and a queue of its keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig
from torch import Tensor, nn

from simco_methods.dictionary import KeyQueue
from simco_methods.distributed import gather_rows
from simco_methods.host import LeanMomentumMethod
from simco_methods.losses import info_nce_loss
from simco_methods.methods.momentum import MomentumContrast
from simco_methods.methods.parts import method_settings


class MoCoV2(MomentumContrast):
    """MoCo v2 (Chen et al., https://arxiv.org/abs/2003.04297).

    InfoNCE (Eq. 1) against a queue of the keys of earlier steps, of all processes.
    ``symmetric: true`` is MoCo v2+, with one queue a side: solo-learn's ``mocov2plus``, step by
    step.

    Config, ``method_kwargs``:
        proj_hidden_dim, proj_output_dim: widths of the projector, 128 and 128.
        tau: temperature, 0.1.
        queue_size: keys in the queue (each queue), 65536.
        symmetric: each view is query and key, false.
    """

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        kwargs = self.cfg.method_kwargs
        self._new_keys: list[Tensor] = []
        # solo-learn draws its two queues view by view; side 0 contrasts with the second one's keys.
        queues = [
            KeyQueue(kwargs.queue_size, kwargs.proj_output_dim)
            for _ in range(2 if kwargs.symmetric else 1)
        ]
        self.queues = nn.ModuleList(reversed(queues))

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        cfg = LeanMomentumMethod.add_and_assert_specific_cfg(cfg)
        return method_settings(cfg, {"tau": 0.1, "queue_size": 65536, "symmetric": False})

    def contrast(self, query: Tensor, key: Tensor, side: int) -> Tensor:
        """InfoNCE of the queries against the side's queue; the keys wait to be enqueued."""
        self._new_keys.append(gather_rows(key))
        return info_nce_loss(query, key, self.queues[side].keys, self.cfg.method_kwargs.tau)

    def training_step(self, batch: list[Any], batch_idx: int) -> Tensor:
        self._new_keys = []
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, outputs: Any, batch: Sequence[Any], batch_idx: int) -> None:
        """Enqueues the keys, now that no backward needs the queue as it was."""
        super().on_train_batch_end(outputs, batch, batch_idx)
        for queue, keys in zip(self.queues, self._new_keys, strict=True):
            queue.enqueue(keys)

    def log_contrast(self, loss: Tensor, query: Tensor, key: Tensor) -> None:
        self.log_contrastive(loss, query, key, self.queues[0].keys, self.cfg.method_kwargs.tau)

    def negatives_per_anchor(self, batch: int) -> int:
        """Negatives of an anchor: the queue, whatever the ``batch``."""
        return self.cfg.method_kwargs.queue_size
