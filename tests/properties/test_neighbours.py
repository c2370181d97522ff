"""The nearest neighbours in tiles, for any sizes and any memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simco_methods.host.knn import knn_accuracy
from simco_methods.host.neighbours import Bank
from tests.host.test_knn import reference
from tests.properties.drawn import Rows, seeds

distances = st.sampled_from(["cosine", "euclidean"])
memories = st.integers(1, 2**18) | st.sampled_from([1, 2**20, 2**27])


@given(
    count=st.integers(1, 400) | st.integers(256, 1200),
    queries=st.integers(1, 30),
    dim=st.integers(1, 12),
    k=st.integers(1, 5) | st.integers(1, 40),
    distance=distances,
    memory=memories,
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    kind=st.just("random")
    | st.sampled_from(["duplicates", "identical", "zero rows", "orthonormal"]),
    seed=seeds,
)
def test_finds_the_nearest(count, queries, dim, k, distance, memory, dtype, kind, seed):
    k = min(k, count)
    rows, asked = (Rows(kind, n, dim, seed + n).make().to(dtype) for n in (count, queries))
    bank = Bank(rows, distance, k, memory)
    found = [bank.nearest(part) for part in asked.split(bank.queries)]
    scores, neighbours = (torch.cat(parts) for parts in zip(*found, strict=True))
    assert all(len(set(row)) == k for row in neighbours.tolist())
    if distance == "cosine":
        wide, wanted = (torch.nn.functional.normalize(x.double()) for x in (rows, asked))
        every = wanted @ wide.T
    else:
        every = -(asked.double().unsqueeze(1) - rows.double()).norm(dim=2)
        scores = -torch.cat(
            [
                bank.distances(part, chosen)
                for part, chosen in zip(
                    asked.split(bank.queries), neighbours.split(bank.queries), strict=True
                )
            ]
        )
    # Of equally near rows any may be taken.
    limits = {"rtol": 0, "atol": 2e-6 if distance == "cosine" else 2e-3}
    torch.testing.assert_close(every.gather(1, neighbours), scores.double(), rtol=0, atol=1e-5)
    torch.testing.assert_close(
        every.gather(1, neighbours).sort(dim=1).values,
        every.topk(k).values.sort(dim=1).values,
        **limits,
    )


@given(
    count=st.integers(1, 300),
    queries=st.integers(1, 20),
    k=st.integers(1, 30),
    classes=st.integers(1, 12),
    distance=distances,
    memory=memories,
    seed=seeds,
)
def test_votes_are_the_reference_s(count, queries, k, classes, distance, memory, seed):
    generator = torch.Generator().manual_seed(seed)
    sides = []
    for n in (count, queries):
        sides.append(torch.randn(n, 5, generator=generator) + 1)
        sides.append(torch.randint(classes, (n,), generator=generator))
    found = knn_accuracy(
        *sides, k=k, distance=distance, num_classes=classes, memory_mib=memory / 2**20
    )
    expected = reference(*sides, min(k, count), distance, classes)
    assert found == pytest.approx(expected)
    assert (found[1] is None) == (classes < 6)
    assert 0 <= found[0] <= (100 if found[1] is None else found[1]) <= 100
