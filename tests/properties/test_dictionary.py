"""The key queue against a plain list, whatever is done to it in whatever order."""

import copy
import io

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simco_methods.dictionary import KeyQueue
from tests.properties.drawn import FLOATS, seeds


class Queue(RuleBasedStateMachine):
    """``model`` holds (key, enqueue) of every key that has come in, the newest last."""

    @initialize(size=st.integers(1, 12), dim=st.integers(1, 3), seed=seeds)
    def make(self, size, dim, seed):
        self.size, self.dim = size, dim
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.queue = KeyQueue(size, dim)
        self.empty, self.model, self.steps, self.total = self.queue.keys.clone(), [], 0, 0

    @rule(count=st.integers(0, 3) | st.integers(0, 23), dtype=st.sampled_from(FLOATS))
    def enqueue(self, count, dtype):
        keys = torch.randn(count, self.dim, generator=self.generator).to(dtype)
        self.queue.enqueue(keys)
        self.model += [(key, self.steps) for key in keys.float().tolist()]
        self.model = self.model[-self.size :]
        self.steps, self.total = self.steps + 1, self.total + count

    @rule(dtype=st.sampled_from(FLOATS))
    def convert(self, dtype):
        """As a trainer in half precision does, and once more where it goes on with a run."""
        self.queue = torch.nn.Sequential(self.queue).to(dtype)[0]

    @rule()
    def save_and_load(self):
        file = io.BytesIO()
        torch.save(self.queue.state_dict(), file)
        file.seek(0)
        self.queue = KeyQueue(self.size, self.dim)
        self.queue.load_state_dict(torch.load(file, weights_only=True))

    @rule()
    def copied(self):
        self.queue = copy.deepcopy(self.queue)

    @invariant()
    def holds_the_last_keys(self):
        assert self.queue.keys.dtype == torch.float32 and len(self.queue) == self.size
        assert self.queue.pointer == self.total % self.size and self.queue.step == self.steps
        filled = self.queue.filled
        assert filled.sum() == len(self.model)
        ages, keys = self.queue.ages(), self.queue.keys
        for back, (key, step) in enumerate(reversed(self.model), start=1):
            slot = (self.total - back) % self.size
            assert keys[slot].tolist() == key and ages[slot] == self.steps - 1 - step
        assert (ages[~filled] == -1).all()
        assert torch.equal(keys[~filled], self.empty[~filled])

    @invariant()
    def gives_out_the_newest_the_oldest_or_any(self):
        newest_first = [key for key, _ in reversed(self.model)]
        for size in {1, (self.size + 1) // 2, self.size}:
            for order in ("recent", "earliest", "random"):
                generator = torch.Generator().manual_seed(size)
                slots = self.queue.slots(size, order, generator)
                assert len(slots.unique()) == size
                chosen = self.queue.keys[slots][self.queue.filled[slots]].tolist()
                assert len(chosen) == min(size, len(self.model))
                if order == "random":
                    assert all(key in newest_first for key in chosen)
                else:
                    expected = newest_first if order == "recent" else newest_first[::-1]
                    assert chosen == expected[:size]
                generator.manual_seed(size)
                selected = self.queue.select(size, order, generator)
                whole = self.queue.keys if size == self.size else self.queue.keys[slots]
                assert torch.equal(selected, whole)


TestQueue = Queue.TestCase
