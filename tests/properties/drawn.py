"""What several of the properties draw."""

import math
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from simco_methods.losses import l2_normalize

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
KINDS = ["random", "tight", "duplicates", "antipodes", "orthonormal", "identical", "zero rows"]

seeds = st.integers(0, 2**32 - 1)
# From 0.01 to 2, as many below 0.14 as above.
temperatures = st.floats(math.log(0.01), math.log(2)).map(lambda x: min(math.exp(x), 2.0))


@dataclass(frozen=True)
class Rows:
    """``count`` rows of unit length (or zero) in ``dim`` dimensions, as hard as ``kind`` says."""

    kind: str
    count: int
    dim: int
    seed: int

    def make(self) -> Tensor:
        """(count, dim) in float64."""
        generator = torch.Generator().manual_seed(self.seed)
        rows = torch.randn(self.count + 1, self.dim, generator=generator, dtype=torch.float64)
        numbers = torch.arange(self.count)
        if self.kind == "orthonormal":
            return torch.eye(self.dim, dtype=torch.float64)[numbers % self.dim]
        if self.kind == "duplicates":
            rows = rows[numbers % max(1, self.count // 2)]
        elif self.kind in ("identical", "antipodes"):
            rows = rows[:1].repeat(self.count, 1)
        elif self.kind == "tight":
            rows = rows[-1:] + 0.01 * rows
        rows = rows[: self.count].clone()
        if self.kind == "antipodes":
            rows[1::2] *= -1
        elif self.kind == "zero rows":
            rows[torch.rand(self.count, generator=generator) < 0.5] = 0
        return l2_normalize(rows)


@dataclass(frozen=True)
class Problem:
    """What a loss is of: keys near their anchors, opposite to them or anywhere, and a bank."""

    query: Rows
    key: Rows | int
    bank: Rows
    extended: bool
    types: tuple[torch.dtype, torch.dtype, torch.dtype]
    alpha: float
    beta: float

    def make(self) -> list[Tensor]:
        """Query (N, D), key (N, D) and bank (M, D)."""
        query, bank = self.query.make(), self.bank.make()
        key = self.key * query if isinstance(self.key, int) else self.key.make()
        if self.extended:
            bank = torch.cat([bank, key[:1], -query[:1]])
        return [x.to(dtype) for x, dtype in zip((query, key, bank), self.types, strict=True)]

    def double(self) -> "Problem":
        return replace(self, types=(torch.float64,) * 3)


@st.composite
def problems(draw, dtypes=FLOATS, kinds=KINDS):
    """Of 2 to 12 anchors in 1 to 64 dimensions, a bank of up to 14 rows; often equal taus."""
    count, dim = draw(st.integers(2, 12)), draw(st.integers(1, 9) | st.just(64))
    kind, other = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
    alpha, beta = draw(temperatures), draw(temperatures)
    return Problem(
        query=Rows(kind, count, dim, draw(seeds)),
        key=draw(st.sampled_from([1, -1]) | st.just(Rows(other, count, dim, draw(seeds)))),
        bank=Rows(other, draw(st.integers(1, 12)), dim, draw(seeds)),
        extended=draw(st.booleans()),
        types=tuple(draw(st.sampled_from(dtypes)) for _ in range(3)),
        alpha=alpha,
        beta=draw(st.sampled_from([alpha, beta])),
    )
