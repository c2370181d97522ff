"""kNN in tiles: what an untiled reference gives, within the memory that is set."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from simco_methods.host.knn import OnlineKNN, knn_accuracy
from simco_methods.host.neighbours import Bank


def features(count, dim, seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dim, generator=generator).to(dtype) + 2


def labelled(count, dim, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    return features(count, dim, seed), torch.randint(0, classes, (count,), generator=generator)


def reference(train_features, train_targets, test_features, test_targets, k, distance, classes):
    """In float64, in one matrix, class by class in Python."""
    bank, queries = train_features.double(), test_features.double()
    if distance == "cosine":
        bank, queries = (torch.nn.functional.normalize(x) for x in (bank, queries))
        score, neighbour = (queries @ bank.T).topk(k)
        weight = torch.exp(score / 0.07)
    else:
        distances = (queries.unsqueeze(1) - bank).norm(dim=2)
        score, neighbour = distances.topk(k, largest=False)
        weight = 1 / (score + 1e-5)
    hits = torch.zeros(2)
    for weights, classes_of, target in zip(
        weight, train_targets[neighbour], test_targets, strict=True
    ):
        votes = [weights[classes_of == c].sum().item() for c in range(classes)]
        order = sorted(range(classes), key=lambda c: (-votes[c], c))
        order = [c for c in order if votes[c]]
        hits += torch.tensor([target in order[:1], target in order[:5]])
    top1, top5 = (100 * hits / len(test_targets)).tolist()
    return top1, top5 if classes > 5 else None


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize(
    "count, queries, k, classes, memory",
    [
        (700, 53, 20, 7, None),
        (700, 53, 20, 7, 0.1),
        (701, 53, 33, 7, 0.004),  # more neighbours than a tile has rows
        (333, 10, 5, 40, 0.02),
        (9, 17, 200, 3, 0.001),  # than the bank has
        (4000, 30, 3, 4, 0.4),  # tiles in which groups are looked through
    ],
)
def test_in_tiles_as_at_once(distance, count, queries, k, classes, memory):
    bank, test = labelled(count, 6, classes, 0), labelled(queries, 6, classes, 1)
    settings = {"k": k, "distance": distance, "num_classes": classes}
    expected = reference(*bank, *test, min(k, count), distance, classes)
    assert knn_accuracy(*bank, *test, memory_mib=memory, **settings) == pytest.approx(expected)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("memory", [2**11, 2**14, 2**22, 2**27])
def test_finds_the_nearest(distance, memory):
    rows, queries, k = features(5001, 16, 0), features(37, 16, 1), 11
    bank = Bank(rows, distance, k, memory)
    found = [bank.nearest(part) for part in queries.split(bank.queries)]
    neighbours = torch.cat([neighbour for _, neighbour in found])
    if distance == "cosine":
        rows, queries = (torch.nn.functional.normalize(x.double()) for x in (rows, queries))
        expected, indexes = (queries @ rows.T).topk(k)
        scores = torch.cat([score for score, _ in found])
        torch.testing.assert_close(scores.double(), expected, rtol=0, atol=1e-6)
    else:
        distances = (queries.double().unsqueeze(1) - rows.double()).norm(dim=2)
        expected, indexes = distances.topk(k, largest=False)
        distances = bank.distances(queries, neighbours)
        torch.testing.assert_close(distances.double(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(neighbours, indexes)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_distances_of_near_duplicates_are_right(scale):
    """|q|^2 + |b|^2 - 2 q.b would have lost them all."""
    rows = features(500, 32, 0) + 100
    queries = rows[:40] + scale * 1e-4 * torch.randn(40, 32)
    bank = Bank(rows, "euclidean", 1, 2**20)
    _, neighbour = bank.nearest(queries)
    assert torch.equal(neighbour.squeeze(1), torch.arange(40))
    expected = (queries.double() - rows[:40].double()).norm(dim=1, keepdim=True)
    torch.testing.assert_close(bank.distances(queries, neighbour).double(), expected)
    assert not bank.distances(rows[:40], neighbour).any()


def test_of_equal_votes_the_lower_class_comes_first():
    bank = torch.eye(4).repeat_interleave(2, 0), torch.tensor([5, 2, 2, 5, 0, 1, 1, 3])
    settings = {"k": 2, "num_classes": 8}
    # Two of the classes have half of the votes each, the others none.
    for target, expected in [(2, (100, 100)), (5, (0, 100)), (0, (0, 0)), (7, (0, 0)), (9, (0, 0))]:
        got = knn_accuracy(*bank, torch.eye(4)[:1], torch.tensor([target]), **settings)
        assert got == expected
    # Of all eight: 2 5 1 0 3.
    for target, expected in [(5, (0, 100)), (3, (0, 100)), (4, (0, 0))]:
        found = torch.tensor([target])
        got = knn_accuracy(*bank, torch.eye(4)[:1], found, **{**settings, "k": 8})
        assert got == expected


@pytest.mark.parametrize("temperature", [0.07, 1e-4])
def test_a_class_without_a_vote_is_never_among_the_five(temperature):
    """Nor does a vote get lost that is too small beside the first."""
    bank = torch.eye(3).repeat_interleave(4, 0), torch.tensor([8, 8, 8, 9] + [7] * 8)
    query = torch.tensor([[1.0, 0.5, 0.2]])
    settings = {"k": 12, "num_classes": 10, "temperature": temperature}
    for target, expected in enumerate([(0, 0)] * 7 + [(0, 100), (100, 100), (0, 100)]):
        assert knn_accuracy(*bank, query, torch.tensor([target]), **settings) == expected


@pytest.mark.parametrize("classes", [2, 4, 5])
def test_of_few_classes_there_is_no_top_5(classes):
    bank, test = labelled(60, 8, classes, 0), labelled(20, 8, classes, 1)
    assert knn_accuracy(*bank, *test, num_classes=classes)[1] is None
    assert knn_accuracy(*bank, *test, num_classes=6)[1] <= 100


def test_halves_are_compared_in_float32():
    bank, test = labelled(300, 8, 5, 0), labelled(50, 8, 5, 1)
    for distance in ("cosine", "euclidean"):
        halves = [bank[0].bfloat16(), bank[1], test[0].bfloat16(), test[1]]
        wide = [x.float() if x.is_floating_point() else x for x in halves]
        assert knn_accuracy(*halves, distance=distance) == knn_accuracy(*wide, distance=distance)


class Memory(TorchDispatchMode):
    """The most bytes that new tensors have together, and the largest of them."""

    def __init__(self):
        super().__init__()
        self.sizes, self.most, self.largest = {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        known = {x.untyped_storage()._cdata for x in args if isinstance(x, torch.Tensor)}
        for x in out if isinstance(out, tuple | list) else (out,):
            if not isinstance(x, torch.Tensor) or "split" in str(func):
                continue
            storage = x.untyped_storage()
            key = storage._cdata
            if key not in known and key not in self.sizes:
                self.sizes[key] = storage.nbytes()
                weakref.finalize(storage, self.sizes.pop, key, None)
                self.largest = max(self.largest, storage.nbytes())
                self.most = max(self.most, sum(self.sizes.values()))
        return out


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("k, classes", [(20, 10), (200, 1000)])
@pytest.mark.parametrize("memory", [1, 4])
def test_stays_within_the_memory(distance, k, classes, memory):
    bank, test = labelled(9000, 64, classes, 0), labelled(900, 64, classes, 1)
    settings = {"k": k, "distance": distance, "num_classes": classes, "memory_mib": memory}
    with Memory() as mode:
        knn_accuracy(*bank, *test, **settings)
    limit = memory * 2**20
    assert limit / 8 < mode.largest < limit
    assert mode.most < limit


# ---- during training -----------------------------------------------------------------------------


def test_unlabelled_rows_are_dropped_at_the_latest_when_it_is_computed():
    bank, test = labelled(60, 8, 5, 0), labelled(20, 8, 5, 1)
    expected = knn_accuracy(*bank, *test, k=7, distance="euclidean", num_classes=5)
    metric = OnlineKNN(7, num_classes=5)
    gaps = torch.full((3,), -1)
    for side, (rows, targets) in (("train", bank), ("test", test)):
        for number, part in enumerate(zip(rows.split(13), targets.split(13), strict=True)):
            metric.update(side, torch.cat([features(3, 8, 9), part[0]]), torch.cat([gaps, part[1]]))
            if number == 1:
                metric.drop_unlabelled()
                kept = getattr(metric, f"{side}_targets")
                assert sum(map(len, kept)) == min(26, len(rows))
    assert metric.compute() == expected
    assert len(metric.train_features) == 1 and len(metric.train_features[0]) == 60
    metric.reset()
    metric.update("train", bank[0], bank[1])
    assert metric.compute() is None
    metric.update("test", test[0], torch.full((20,), -1))
    metric._computed = None
    assert metric.compute() is None


def test_fully_labelled_rows_are_not_copied():
    metric = OnlineKNN()
    rows, targets = labelled(60, 8, 5, 0)
    metric.update("train", rows, targets)
    metric.drop_unlabelled()
    assert metric.train_features[0].data_ptr() == rows.data_ptr()


def test_of_a_larger_tensor_only_the_rows_are_kept():
    """Such as the class tokens of a vision transformer."""
    metric, tokens = OnlineKNN(), torch.randn(8, 50, 16)
    metric.update("train", tokens[:, 0], torch.zeros(8, dtype=torch.long))
    assert metric.train_features[0].untyped_storage().nbytes() == 8 * 16 * 4
    assert torch.equal(metric.train_features[0], tokens[:, 0])
