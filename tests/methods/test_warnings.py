"""What is warned of while training, and when: in no healthy run, and once in one that is not."""

import math
import warnings

import pytest
import torch
from torch.utils.data import DataLoader

from simco_methods.methods.watch import TrainingWatch
from tests.helpers import VARIANTS, batch, build, quiet_trainer

BATCHES = 3
# Weighed, the loss of a hopeless anchor is as small as that of an easy one.
RANGED = [variant for variant in VARIANTS if variant[0] != "simsiam_hardness"]


def alike(images):
    """Batches of one image, which no encoder can tell apart."""
    indices, views, targets = batch(images)
    return [indices, [torch.ones_like(view) for view in views], targets]


def fit(model, batches, epochs, checkpoint=None):
    """The warnings of the pack, as ``(epoch, message)``, and the trainer."""
    run, seen = quiet_trainer(max_epochs=epochs), []

    def note(message, category, *_):
        if str(message).startswith(("the embedding", "train_")):
            seen.append((run.current_epoch, str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        run.fit(model, DataLoader(batches, batch_size=None), ckpt_path=checkpoint)
    return seen, run


@pytest.mark.parametrize("name, symmetric", RANGED)
def test_chance_is_the_loss_of_images_that_are_all_alike(name, symmetric):
    """With keys of the same image in the queue, and a head or predictor that says nothing."""
    settings = {
        "decoupled_moco": {
            "method_kwargs__vector": {"negatives": "batch", "tau": 0.2},
            "method_kwargs__scalar": {"order": "recent", "size": 13, "tau": 0.5},
        }
    }
    model = build(name, symmetric, **settings.get(name, {})).eval()
    images = alike(8)
    if name == "supervised_hardness":
        torch.nn.init.zeros_(model.head.weight)
        torch.nn.init.zeros_(model.head.bias)
    elif name == "byol_hardness":
        # Predictions at right angles to the keys.
        forward, turn = model.forward, torch.arange(8).roll(1)
        key = model.momentum_forward(images[1][0])["z"]
        across = torch.nn.functional.normalize(
            key[:, turn] - (key[:, turn] * key).sum(1, True) * key
        )
        model.forward = lambda X: {**forward(X), "p": across}
    for queue in getattr(model, "queues", []):
        queue.enqueue(model.momentum_forward(images[1][0])["z"].repeat(3, 1))
    model.training_step(images, 0)
    chance, best = model.loss_range(8)
    assert best < chance
    loss = model._step_values[f"{model._loss_name}_step"]
    assert float(loss) == pytest.approx(chance, rel=1e-5)


def test_chance_is_the_logarithm_of_the_number_of_similarities():
    assert build("simco").loss_range(64)[0] == pytest.approx(math.log(64))
    model = build("mocov2", method_kwargs__queue_size=65536)
    assert model.loss_range(256)[0] == pytest.approx(math.log(65537))
    assert build("supervised_hardness").loss_range(8) == (math.log(10), 0)
    assert build("simsiam_hardness", method_kwargs__weighted=False).loss_range(8) == (0, -1)
    assert build("simsiam_hardness").loss_range(8) is None
    assert build("simco").loss_range(1) is None


@pytest.mark.parametrize("tau", [0.05, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("negatives", [63, 65536])
def test_a_little_learnt_is_not_chance(tau, negatives):
    """At every temperature: a positive nearer than the negatives by an eighth of what can be."""
    model = build("mocov2", method_kwargs__tau=tau, method_kwargs__queue_size=negatives)
    levels, watch = model.loss_range(8), TrainingWatch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for nearer, expected in ((0.125, 0), (0.0, 1)):
            loss = math.log1p(negatives * math.exp(-nearer / tau))
            for _ in range(3):
                watch.check_loss("train_nce_loss", loss, *levels)
            assert len(caught) == expected
    assert "at its chance level" in str(caught[0].message)


@pytest.mark.parametrize(
    "name, changes, first",
    [
        ("simco", {}, 1),
        ("simco", {"scheduler__warmup_epochs": 2}, 2),
        ("simco", {"scheduler": {"name": "none"}}, 1),
        # 24 keys an epoch: full in the third, so the fourth is the first with all of them.
        ("mocov2", {"method_kwargs__queue_size": 60, "optimizer__lr": 0.0}, 3),
        ("decoupled_moco", {"method_kwargs__queue_size": 60, "optimizer__lr": 0.0}, 3),
    ],
)
def test_images_that_are_all_alike_warn_once(name, changes, first):
    model = build(name, **changes)
    seen, _ = fit(model, [alike(8)] * BATCHES, epochs=first + 3)
    (epoch, message), (later, other) = seen
    assert epoch == first and "the embedding has collapsed" in message
    assert later == first + 1 and "train_nce_loss is" in other and "at its chance level" in other


def test_a_resumed_run_does_not_warn_again(tmp_path):
    build_it = lambda: build("simco", max_epochs=6)  # noqa: E731
    model = build_it()
    seen, run = fit(model, [alike(8)] * BATCHES, epochs=3)
    assert len(seen) == 2
    run.save_checkpoint(tmp_path / "last.ckpt")
    assert "simco_watch" in torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert fit(build_it(), [alike(8)] * BATCHES, 6, tmp_path / "last.ckpt")[0] == []
    seen, _ = fit(model, [alike(8)] * BATCHES, epochs=3)  # the same model, trained anew
    assert seen == []


def similar(seed):
    """A batch of images whose views are much alike."""
    indices, (view, noise), targets = batch(16, seed=seed)
    return [indices, [view, view + 0.1 * noise], targets]


@pytest.mark.parametrize("name", ["simco", "supervised_hardness"])
def test_images_that_differ_do_not_warn(name):
    model = build(name, max_epochs=4, optimizer__lr=0.02)
    assert fit(model, [similar(seed) for seed in range(BATCHES)], epochs=4)[0] == []
