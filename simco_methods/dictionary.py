"""The dictionary: a FIFO queue of keys (He et al., MoCo, https://arxiv.org/abs/1911.05722)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from simco_methods.losses import l2_normalize

ORDERS = ("recent", "earliest", "random")


class KeyQueue(nn.Module):
    """The last ``size`` keys, first in, first out.

    Takes batches of any size: K need not be a multiple of it, and of a batch larger than K the last
    K keys stay. A slot that no key has reached yet holds a random unit vector, as in MoCo, and says
    so through :attr:`filled` and :meth:`ages`. Everything is a buffer, so checkpoints restore it;
    nothing reads a number back from the device.

    Read it before :meth:`enqueue`, and enqueue only after the backward pass of that read: then no
    copy is needed and no step sees its own keys.

    Args:
        size: K, number of keys, at least 1.
        dim: D, length of a key, at least 1.

    Attributes:
        keys: (K, D) float32, whatever type the enqueued keys have.
        pointer: scalar, the slot that the next key takes.
        written: (K,) the :attr:`step` at which each slot was last written, -1 for never.
        step: scalar, number of enqueues so far.

    Raises:
        ValueError: a size or dim below 1.
    """

    keys: Tensor
    pointer: Tensor
    written: Tensor
    step: Tensor

    def __init__(self, size: int, dim: int):
        super().__init__()
        for name, value in (("size", size), ("dim", dim)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"the queue's {name} must be a whole number above 0, got {value!r}"
                )
        # Drawn as (D, K), the order in which solo-learn draws its queue: the same seed gives
        # the same first negatives there and here.
        keys = l2_normalize(torch.randn(dim, size, dtype=torch.float32).T.contiguous())
        self.register_buffer("keys", keys)
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))
        self.register_buffer("written", torch.full((size,), -1, dtype=torch.long))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def __len__(self) -> int:
        return self.keys.shape[0]

    def extra_repr(self) -> str:
        return "size={}, dim={}".format(*self.keys.shape)

    @property
    def filled(self) -> Tensor:
        """(K,) bool, True where a slot holds an enqueued key."""
        return self.written >= 0

    def ages(self) -> Tensor:
        """(K,) enqueues since each key came in, 0 for the newest batch; -1 for an empty slot."""
        return torch.where(self.filled, self.step - 1 - self.written, -1)

    @torch.no_grad()
    def select(
        self, size: int, order: str = "recent", generator: torch.Generator | None = None
    ) -> Tensor:
        """``size`` of the K keys, in no particular order: the same tensor as :attr:`keys` if all.

        While the queue fills, only keys that have been enqueued are chosen from, as long as there
        are enough of them; slots that hold a random vector make up the rest.

        Args:
            size: from 1 to K.
            order: "recent" for the newest keys, "earliest" for the oldest that are there, "random"
                for a draw without replacement.
            generator: of the draw, on the device of the keys or on the CPU; None for torch's own.

        Returns:
            (size, D).

        Raises:
            ValueError: a size out of range, or an unknown order.
        """
        return self.keys if size == len(self) else self.keys[self.slots(size, order, generator)]

    @torch.no_grad()
    def slots(
        self, size: int, order: str = "recent", generator: torch.Generator | None = None
    ) -> Tensor:
        """(size,) indexes of the slots that :meth:`select` reads."""
        capacity, device = len(self), self.keys.device
        if not 1 <= size <= capacity:
            raise ValueError(f"{size} keys cannot be chosen from a queue of {capacity}")
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
        if order == "random":
            where = generator.device if generator is not None else device
            # Pinned, so that a draw on the CPU reaches a GPU without a wait for it.
            pinned = where.type == "cpu" and device.type == "cuda"
            draw = torch.rand(capacity, generator=generator, device=where, pin_memory=pinned)
            draw = draw.to(device, non_blocking=True)
            return (draw + self.filled).topk(size).indices
        offset = torch.arange(size, device=device)
        if order == "recent":
            return (self.pointer - 1 - offset) % capacity
        # A slot that was never written comes after the pointer: the oldest key is then in slot 0.
        oldest = torch.where(self.filled.all(), self.pointer, 0)
        return (oldest + offset) % capacity

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        """Replaces the oldest keys by ``keys``, (N, D) of any floating type and any N.

        Raises:
            ValueError: keys of another shape than (N, D).
        """
        size, dim = self.keys.shape
        if keys.ndim != 2 or keys.shape[1] != dim:
            raise ValueError(f"keys must have the shape (N, {dim}), got {tuple(keys.shape)}")
        count = keys.shape[0]
        kept = min(count, size)
        first = self.pointer + (count - kept)
        slots = (first + torch.arange(kept, device=self.keys.device)) % size
        self.keys.index_copy_(0, slots, keys[count - kept :].to(self.keys))
        self.written.index_copy_(0, slots, self.step.expand(kept))
        self.step += 1
        self.pointer.add_(count).remainder_(size)

    def _apply(self, fn, *args, **kwargs):
        # Half-precision modules (precision 16-true, bf16-true) keep a float32 queue with all of its
        # digits: Lightning converts a run that goes on after its checkpoint has been read.
        keys = self.keys
        super()._apply(fn, *args, **kwargs)
        if self.keys.dtype != keys.dtype:
            self.keys = keys.to(self.keys.device)
        return self
