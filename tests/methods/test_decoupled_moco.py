"""Decoupled MoCo: what it contains, which keys its components see, and what it refuses."""

import functools

import pytest
import torch
from torch.utils.data import DataLoader

from simco_methods.losses import decoupled_info_nce_loss
from tests.helpers import Losses, batch, build, quiet_trainer

BATCH = {"negatives": "batch"}


def both(**settings):
    return {f"method_kwargs__{name}": dict(settings) for name in ("vector", "scalar")}


def train(name, symmetric, precision="32-true", **changes):
    """Losses and weights of 20 steps, and of the online network alone."""
    model, losses = build(name, symmetric, max_epochs=4, **changes), Losses()
    options = {"callbacks": [losses], "log_every_n_steps": 5, "precision": precision}
    trainer = quiet_trainer(max_epochs=4, **options)
    trainer.fit(model, DataLoader([batch(seed=step) for step in range(5)], batch_size=None))
    assert len(losses.seen) == 20
    return losses.seen, model.state_dict()


@functools.cache
def moco(symmetric, **options):
    return train("mocov2", symmetric, **options)


def assert_same(one, other, without=""):
    assert one[0] == other[0]
    weights = [{k: v for k, v in state.items() if k[:6] != without} for _, state in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    assert not [k for k in weights[0] if not torch.equal(weights[0][k], weights[1][k])]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        both(size=20, order="earliest", tau=0.1),
        {"method_kwargs__vector": {"order": "random"}, "method_kwargs__scalar": {"size": 20}},
    ],
    ids=["as it stands", "earliest of all", "random of all"],
)
def test_the_whole_queue_at_one_temperature_is_moco(settings, symmetric):
    # Its loss is weighed by W over W, which is 1: a rounding away from the plain one, so that in
    # float32 they soon part.
    ours = train("decoupled_moco", symmetric, precision="64-true", **settings)
    theirs = moco(symmetric, precision="64-true")
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("tau_alpha, tau_beta", [(0.1, 1.0), (0.2, 0.05)])
def test_the_batch_is_simmoco(tau_alpha, tau_beta, symmetric):
    ours = train(
        "decoupled_moco",
        symmetric,
        method_kwargs__vector={**BATCH, "tau": tau_alpha},
        method_kwargs__scalar={**BATCH, "tau": tau_beta},
    )
    assert not [key for key in ours[1] if key.startswith("queues")]
    taus = {"method_kwargs__tau_alpha": tau_alpha, "method_kwargs__tau_beta": tau_beta}
    assert_same(ours, train("simmoco", symmetric, **taus))


# name -> (settings, keys of the vector component, of the scalar component), as rows of the keys so
# far, oldest first: the queue's last 20 of them, in batches of 8; None is the batch.
ROWS = {
    **{
        f"Fig. 2, vector of {n}": ({"vector": {"size": n}}, slice(-n, None), slice(-20, None))
        for n in (1, 5, 19)
    },
    **{
        f"Fig. 2, scalar of {n}": ({"scalar": {"size": n}}, slice(-20, None), slice(-n, None))
        for n in (1, 5, 19)
    },
    "Table 1, recent": ({"vector": {"size": 8}, "scalar": {"size": 8}}, *2 * [slice(-8, None)]),
    "Table 1, earliest": (
        {name: {"size": 8, "order": "earliest"} for name in ("vector", "scalar")},
        *2 * [slice(-20, -12)],
    ),
    "Table 2, last iteration": (
        {"vector": {"size": 8, "tau": 0.2}, "scalar": {"size": 8, "tau": 1.0}},
        *2 * [slice(-8, None)],
    ),
    "Table 2, current": ({"vector": BATCH, "scalar": {**BATCH, "tau": 0.5}}, None, None),
    "one of each": ({"vector": BATCH, "scalar": {"size": 3, "tau": 0.7}}, None, slice(-3, None)),
    "the other way": ({"vector": {"order": "earliest", "size": 9}, "scalar": BATCH},
                      slice(-20, -11), None),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_each_component_sees_its_own_keys(name):
    settings, vector, scalar = ROWS[name]
    model = build("decoupled_moco", **{f"method_kwargs__{k}": v for k, v in settings.items()})
    kwargs = model.cfg.method_kwargs
    stream, steps, contrast = [], [], model.contrast

    def spy(query, key, side):
        loss = contrast(query, key, side)
        if len(stream) >= 3:
            keys = torch.cat(stream)
            banks = [None if rows is None else keys[rows] for rows in (vector, scalar)]
            expected = decoupled_info_nce_loss(
                query, key, *banks, kwargs.vector.tau, kwargs.scalar.tau
            )
            torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
            steps.append(loss)
        stream.append(key)
        return loss

    model.contrast = spy
    batches = [batch(seed=step) for step in range(5)]
    quiet_trainer().fit(model, DataLoader(batches, batch_size=None))
    assert len(steps) == 2


def test_random_keys_are_drawn_anew_each_step_and_for_each_component(monkeypatch):
    model = build(
        "decoupled_moco",
        method_kwargs__vector={"size": 6, "order": "random"},
        method_kwargs__scalar={"size": 7, "order": "random"},
    )
    model.queues[0].enqueue(torch.randn(20, 8))
    drawn = []
    for epoch, step in ((0, 0), (0, 1), (1, 0), (0, 0)):
        monkeypatch.setattr(type(model), "current_epoch", epoch)
        model._batch_idx = step
        drawn.append(model._negatives(0))
    assert [len(bank) for bank in drawn[0]] == [6, 7]
    for first, next_step, next_epoch, again in zip(*drawn, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, next_step) and not torch.equal(first, next_epoch)
    assert not torch.equal(drawn[0][0], drawn[0][1][:6])


def test_alike_components_share_a_draw_and_sides_do_not():
    """Table 1's random keys: one draw for both components, another for the other side."""
    model = build("decoupled_moco", True, **both(size=6, order="random"))
    for queue in model.queues:
        queue.enqueue(torch.nn.functional.normalize(torch.randn(20, 8), dim=1))
    query, key = (torch.nn.functional.normalize(torch.randn(5, 8), dim=1) for _ in range(2))
    model._batch_idx, model._new_keys = 3, []
    model.queues[1].load_state_dict(model.queues[0].state_dict())
    (bank, scalar), (other, _) = (model._negatives(side) for side in (0, 1))
    assert scalar is bank and bank.shape == (6, 8)
    assert (torch.cdist(bank, model.queues[0].keys).min(dim=1).values < 1e-6).all()
    assert not torch.equal(bank.sort(dim=0).values, other.sort(dim=0).values)
    loss = model.contrast(query, key, 0)
    torch.testing.assert_close(loss, decoupled_info_nce_loss(query, key, bank, bank, 0.1, 0.1))
    whole = decoupled_info_nce_loss(query, key, *2 * [model.queues[0].keys], 0.1, 0.1)
    assert (loss - whole).abs() > 1e-3


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"vector": {"size": 21}}, "vector.size=21 is above method_kwargs.queue_size=20"),
        ({"scalar": {**BATCH, "size": 4}}, "scalar: 4 says which keys of the queue"),
        ({"scalar": {**BATCH, "order": "random"}}, "scalar: random says which keys of the queue"),
        ({"vector": {"order": "newest"}}, "vector.order must be one of recent, earliest, random"),
        ({"vector": {"negatives": "all"}}, "vector.negatives must be one of queue, batch"),
        ({"vector": {"taus": 0.1}}, "vector.taus is unknown .* did you mean tau"),
        ({"scalar": {"tau": 0}}, "scalar.tau must be a finite number above 0, got 0"),
        ({"scalar": {"size": 0}}, "scalar.size must be a whole number above 0, got 0"),
        ({"vector": 256}, "method_kwargs.vector must be a mapping .* got 256"),
        ({"tau_beta": 1.0}, "method_kwargs.tau_beta is unknown to decoupled_moco"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        build("decoupled_moco", **{f"method_kwargs__{key}": v for key, v in settings.items()})


def test_says_how_many_negatives_there_are():
    model = build("decoupled_moco", method_kwargs__vector=BATCH, method_kwargs__scalar={"size": 4})
    assert model.negatives_per_anchor(16) == "15 (vector) and 4 (scalar)"
