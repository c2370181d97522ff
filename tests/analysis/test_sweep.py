"""One pass over the dictionary against float64 oracles, for any sizes, temperatures and tiles."""

import math

import pytest
import torch

from simco_methods.analysis import sweep as module
from simco_methods.analysis.sweep import sweep_dictionary
from simco_methods.benchmark.analyses import plain_way
from simco_methods.losses import anchor_hardness, l2_normalize, negative_penalty, relative_penalty

SIZES, TAUS = [2, 7, 64, 100], [0.01, 0.1, 1.0, 5.0]


def data(count=12, keys=100, dim=8, dtype=torch.float32, near=0.3):
    generator = torch.Generator().manual_seed(0)
    query = l2_normalize(torch.randn(count, dim, generator=generator, dtype=torch.float64))
    noise = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    bank = l2_normalize(torch.randn(keys, dim, generator=generator, dtype=torch.float64))
    return tuple(t.to(dtype) for t in (query, l2_normalize(query + near * noise), bank))


@pytest.mark.parametrize("tile", [None, (5, 3), (1, 1), (12, 100), (64, 1000)])
def test_agrees_with_the_definitions(tile):
    query, key, bank = data()
    sweep = sweep_dictionary(query, key, bank, SIZES, TAUS, tile=tile)
    exact = [t.double() for t in (query, key, bank)]
    for t, tau in enumerate(TAUS):
        for s, size in enumerate(SIZES):
            arguments = (exact[0], exact[1], exact[2][:size], tau)
            torch.testing.assert_close(
                sweep.hardness[t, s], anchor_hardness(*arguments), rtol=1e-4, atol=1e-30
            )
            weights = negative_penalty(*arguments)
            entropy = torch.special.entr(weights).sum(1) / math.log(size)
            torch.testing.assert_close(sweep.negative_entropy[t, s], entropy, rtol=0, atol=3e-5)
            share = sweep.relative_penalty(4)[t, s]
            for group in range(3):
                rows = slice(4 * group, 4 * group + 4)
                expected = relative_penalty(exact[0][rows], exact[1][rows], exact[2][:size], tau)
                torch.testing.assert_close(share[group], expected, rtol=1e-4, atol=1e-12)


def test_in_float64_it_is_exact():
    query, key, bank = data(dtype=torch.float64)
    sweep = sweep_dictionary(query, key, bank, SIZES, TAUS, tile=(5, 3))
    hardness, entropy = plain_way(query, key, bank, SIZES, TAUS)
    torch.testing.assert_close(sweep.hardness, hardness, rtol=1e-10, atol=1e-300)
    torch.testing.assert_close(sweep.negative_entropy, entropy, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_hard_inputs(dtype):
    """Keys all alike: an even share. Keys opposite to the anchors, and equal to the positives."""
    query = torch.eye(4, dtype=dtype)
    alike = query[:1].expand(50, 4)
    sweep = sweep_dictionary(query, query, alike, [2, 50], [0.01, 1.0])
    torch.testing.assert_close(sweep.negative_entropy, torch.ones_like(sweep.negative_entropy))
    # An anchor whose positive equals every key has W = m / (m + 1).
    own = sweep.hardness[:, :, 0]
    expected = torch.tensor([2 / 3, 50 / 51], dtype=torch.float64).expand(2, 2)
    torch.testing.assert_close(own, expected)
    opposite = sweep_dictionary(query, query, -query, [4], [0.01])
    assert torch.isfinite(opposite.logit).all() and (opposite.hardness[0, 0] < 1e-40).all()
    assert opposite.relative_penalty(4).sum() == pytest.approx(1)


def test_each_similarity_once_and_never_more_than_a_tile(monkeypatch):
    """Counted at the matrix product, by whose results nothing else is kept."""
    made = []
    product = torch.Tensor.__matmul__
    query, key, bank = data(count=10, keys=96)

    def spy(left, right):
        result = product(left, right)
        made.append(result.numel())
        return result

    monkeypatch.setattr(torch.Tensor, "__matmul__", spy)
    sweep_dictionary(query, key, bank, [10, 50, 96], [0.1, 0.2, 0.5], tile=(4, 16))
    assert sum(made) == 10 * 96 and max(made) <= 4 * 16


def test_a_size_stands_for_the_first_keys_whatever_other_sizes_there_are():
    query, key, bank = data(dtype=torch.float64)
    alone = sweep_dictionary(query, key, bank, [64], TAUS, tile=(12, 1000))
    among = sweep_dictionary(query, key, bank, [100, 2, 64, 64, 63], TAUS, tile=(12, 1000))
    assert among.sizes == [2, 63, 64, 100]
    torch.testing.assert_close(among.logit[:, 2], alone.logit[:, 0])


def test_bad_input_is_named():
    query, key, bank = data()
    for arguments, message in [
        ((query, key, bank[:0], [2], [0.1]), "dictionary must have the shape"),
        ((query, key, bank, [101], [0.1]), "a dictionary of 101 keys .* 2 to 100 can be had"),
        ((query, key, bank, [1], [0.1]), "a dictionary of 1 keys"),
        ((query, key, bank, [], [0.1]), "no dictionary size"),
        ((query, key, bank, [2], [0.0]), "temperature must be a finite number above 0, got 0.0"),
        ((query, key[:3], bank, [2], [0.1]), "two tensors of one shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            sweep_dictionary(*arguments)


def test_tiles_never_cross_a_size():
    assert module._edges([5, 12], 4) == [(0, 4), (4, 5), (5, 8), (8, 12)]
