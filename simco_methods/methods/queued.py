"""What the methods with a dictionary share: queues of keys, filled after each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from omegaconf import DictConfig
from torch import Tensor, nn

from simco_methods.dictionary import KeyQueue
from simco_methods.distributed import gather_rows, world_size
from simco_methods.methods.momentum import MomentumContrast


class QueuedContrast(MomentumContrast):
    """A momentum encoder whose keys wait in a queue, one a side, for the anchors of later steps.

    A method sets ``method_kwargs.queue_size`` and reads ``self.queues[side]`` in :meth:`contrast`.
    Keys are those of all processes.
    """

    def __init__(self, cfg: DictConfig):
        super().__init__(cfg)
        kwargs = self.cfg.method_kwargs
        self._new_keys: list[Tensor] = []
        sides = (2 if kwargs.symmetric else 1) if self.uses_queue else 0
        # solo-learn draws its two queues view by view; side 0 contrasts with the second one's keys.
        queues = [KeyQueue(kwargs.queue_size, kwargs.proj_output_dim) for _ in range(sides)]
        self.queues = nn.ModuleList(reversed(queues))
        # They are filled alike in all processes, in which DDP would send them around before every
        # forward.
        names = [f"queues.{name}" for name, _ in self.queues.named_buffers()]
        self._ddp_params_and_buffers_to_ignore = names

    @property
    def uses_queue(self) -> bool:
        """Whether there is a queue; its memory is spared where no component reads it."""
        return True

    @property
    def has_all_negatives(self) -> bool:
        """Whether every queue is full of keys; until then there are random vectors in it."""
        return all(bool(queue.filled.all()) for queue in self.queues)

    def on_train_start(self) -> None:
        super().on_train_start()
        if world_size() > 1:
            for buffer in self.queues.buffers():
                dist.broadcast(buffer, 0)

    def training_step(self, batch: list[Any], batch_idx: int) -> Tensor:
        """The contrastive loss plus the probes'; the keys wait to be enqueued."""
        self._new_keys = []
        return super().training_step(batch, batch_idx)

    def keep(self, key: Tensor) -> Tensor:
        """Sets keys, (N, D) of this process, aside for the next side's queue.

        Returns:
            (W * N, D), those of all processes.
        """
        keys = gather_rows(key)
        if self.uses_queue:
            self._new_keys.append(keys)
        return keys

    def on_train_batch_end(self, outputs: Any, batch: Sequence[Any], batch_idx: int) -> None:
        """Enqueues the keys, now that no backward needs the queue as it was."""
        super().on_train_batch_end(outputs, batch, batch_idx)
        if not self.step_left_out:
            for queue, keys in zip(self.queues, self._new_keys, strict=True):
                queue.enqueue(keys)
