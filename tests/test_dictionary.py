import io

import pytest
import torch

from simco_methods.dictionary import ORDERS, KeyQueue
from simco_methods.losses import info_nce_loss


def numbered(first, count, dim=4):
    """Keys whose first entry is their running number."""
    keys = torch.zeros(count, dim)
    keys[:, 0] = torch.arange(first, first + count)
    return keys


def oldest_first(queue):
    return queue.keys.roll(-int(queue.pointer), 0)


@pytest.mark.parametrize("batches", [[32] * 6 + [7], [100], [250], [1] * 130, [99, 2, 101, 3]])
def test_holds_exactly_the_last_keys(batches):
    queue, total = KeyQueue(100, 4), 0
    for count in batches:
        queue.enqueue(numbered(total, count))
        total += count
    assert queue.pointer == total % 100
    assert queue.filled.all()
    assert torch.equal(oldest_first(queue)[:, 0], torch.arange(total - 100, total).float())


def test_knows_what_is_filled_and_how_old():
    queue = KeyQueue(10, 4)
    assert not queue.filled.any() and queue.ages().eq(-1).all()
    torch.testing.assert_close(queue.keys.norm(dim=1), torch.ones(10))
    for step, count in enumerate([4, 3, 5]):
        queue.enqueue(numbered(100 * step, count))
    # 12 keys in: the two oldest of the first batch are gone.
    assert queue.ages().tolist() == [0, 0, 2, 2, 1, 1, 1, 0, 0, 0]
    queue = KeyQueue(10, 4)
    queue.enqueue(numbered(0, 4))
    assert queue.filled.tolist() == [True] * 4 + [False] * 6
    assert queue.ages().tolist() == [0] * 4 + [-1] * 6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_stays_float32_across_the_wrap(dtype):
    queue = KeyQueue(10, 4)
    for step in range(3):
        queue.enqueue(numbered(step * 7, 7).to(dtype))
    assert queue.keys.dtype == torch.float32
    assert torch.equal(oldest_first(queue)[:, 0], torch.arange(11, 21).float())
    assert queue.half().keys.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_module_of_another_precision_keeps_the_keys_digits(dtype):
    """A run in half precision that goes on is converted after its queue has been restored."""
    queue = KeyQueue(10, 4)
    keys = queue.keys.clone()
    torch.nn.Sequential(queue).to(dtype)
    assert torch.equal(queue.keys, keys)


def test_state_round_trip_and_another_size_is_refused():
    queue = KeyQueue(10, 4)
    queue.enqueue(numbered(0, 7))
    file = io.BytesIO()
    torch.save(queue.state_dict(), file)
    file.seek(0)
    restored = KeyQueue(10, 4)
    restored.load_state_dict(torch.load(file, weights_only=True))
    for name, value in queue.state_dict().items():
        assert torch.equal(value, restored.state_dict()[name]), name
    assert torch.equal(queue.ages(), restored.ages())
    with pytest.raises(RuntimeError, match=r"keys.*\[10, 4\].*\[12, 4\]"):
        KeyQueue(12, 4).load_state_dict(queue.state_dict())


def test_enqueue_after_backward_needs_no_copy():
    queue = KeyQueue(10, 4)
    query = torch.nn.functional.normalize(torch.randn(3, 4), dim=1).requires_grad_()
    before = queue.keys.clone()
    info_nce_loss(query, query.detach(), queue.keys).backward()
    expected = query.grad.clone()
    queue.enqueue(query.detach())
    query.grad = None
    info_nce_loss(query, query.detach(), before).backward()
    assert torch.equal(query.grad, expected)


def test_bad_input_is_named():
    for size, dim in [(0, 4), (4, 0), (-1, 4), (2.5, 4)]:
        with pytest.raises(ValueError, match="whole number above 0"):
            KeyQueue(size, dim)
    with pytest.raises(ValueError, match=r"\(N, 4\), got \(3, 5\)"):
        KeyQueue(10, 4).enqueue(torch.zeros(3, 5))


# ---- which keys ----------------------------------------------------------------------------------


def numbers(queue, *arguments):
    return queue.select(*arguments)[:, 0].tolist()


@pytest.mark.parametrize("batches", [[10], [4, 4, 4], [30, 7]], ids=["full", "wrapped", "twice"])
def test_recent_and_earliest_of_a_full_queue(batches):
    queue, total = KeyQueue(10, 4), 0
    for count in batches:
        queue.enqueue(numbered(total, count))
        total += count
    last = list(range(total - 10, total))
    for size in (1, 4, 9):
        assert numbers(queue, size, "recent") == last[::-1][:size]
        assert numbers(queue, size, "earliest") == last[:size]
        assert set(numbers(queue, size, "random")) <= set(last)
    for order in ORDERS:
        assert queue.select(10, order) is queue.keys


def test_while_it_fills_only_what_has_come_in_is_chosen():
    queue = KeyQueue(10, 4)
    for step in range(2):
        queue.enqueue(numbered(3 * step, 3))
    assert numbers(queue, 4, "recent") == [5, 4, 3, 2]
    assert numbers(queue, 4, "earliest") == [0, 1, 2, 3]
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        assert queue.filled[queue.slots(6, "random", generator)].all()
    # Of more keys than there are, random vectors make up the rest.
    for order in ORDERS:
        slots = queue.slots(8, order)
        assert len(slots.unique()) == 8 and queue.filled[slots].sum() == 6


def test_ages_of_what_is_chosen():
    queue = KeyQueue(12, 4)
    for step in range(5):
        queue.enqueue(numbered(4 * step, 4))
    ages = queue.ages()
    assert ages[queue.slots(4, "recent")].tolist() == [0] * 4
    assert ages[queue.slots(4, "earliest")].tolist() == [2] * 4


def test_a_random_choice_is_even_without_replacement_and_repeats_with_its_seed():
    queue = KeyQueue(10, 4)
    queue.enqueue(numbered(0, 10))
    counts, draws = torch.zeros(10), 3000
    generator = torch.Generator().manual_seed(0)
    for _ in range(draws):
        slots = queue.slots(3, "random", generator)
        assert len(slots.unique()) == 3
        counts[slots] += 1
    expected = draws * 0.3
    assert (counts - expected).abs().max() < 4 * (expected * 0.7) ** 0.5
    one, other = (
        queue.slots(3, "random", torch.Generator().manual_seed(7)).tolist() for _ in range(2)
    )
    assert one == other


def test_impossible_choices_are_named():
    queue = KeyQueue(10, 4)
    for size in (0, 11):
        with pytest.raises(ValueError, match=f"{size} keys cannot be chosen from a queue of 10"):
            queue.select(size)
    with pytest.raises(ValueError, match="one of recent, earliest, random, got 'old'"):
        queue.select(3, "old")
