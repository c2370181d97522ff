import io

import pytest
import torch

from simco_methods.dictionary import KeyQueue
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
