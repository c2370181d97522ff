"""The pack's methods against solo-learn's own that they contain, step by step."""

import pytest
import torch
from torch.utils.data import DataLoader

from simco_methods.host import HOST, BaseMethod
from simco_methods.methods import BYOLHardness, MoCoV2, SimSiamHardness
from tests.helpers import ROOT, TINY_RESNET, Losses, batch, model_config, quiet_trainer, run_script

pytestmark = pytest.mark.solo_learn


def train(kind, settings):
    # In float64, and not at a high rate: this tiny network doubles a rounding error many times in
    # 20 steps, and a flip of its max-pool would be seen in all that follow. Our queue is float32.
    cfg = model_config("mocov2", momentum__final_tau=1.0, max_epochs=4, optimizer__lr=0.01)
    cfg.method_kwargs = {"proj_hidden_dim": 16, "proj_output_dim": 8, **settings}
    torch.manual_seed(0)
    model, losses = kind(cfg), Losses()
    trainer = quiet_trainer(max_epochs=4, precision="64-true", callbacks=[losses])
    trainer.fit(model, DataLoader([batch(seed=step) for step in range(5)], batch_size=None))
    return model, losses.seen


@pytest.fixture
def solo_methods():
    from solo.methods import METHODS
    from solo.methods.base import BaseMethod as SoloBaseMethod

    name = TINY_RESNET["name"]
    SoloBaseMethod._BACKBONES.setdefault(name, BaseMethod._BACKBONES[name])
    return METHODS


def test_twenty_steps_are_mocov2plus_s(solo_methods):
    settings = {"queue_size": 24}
    ours, our_losses = train(MoCoV2, {**settings, "tau": 0.2, "symmetric": True})
    theirs, their_losses = train(solo_methods["mocov2plus"], {**settings, "temperature": 0.2})
    assert len(our_losses) == 20
    assert our_losses == pytest.approx(their_losses, abs=1e-5)
    state, other = ours.state_dict(), theirs.state_dict()
    shared = [key for key in other if not key.startswith("queue")]
    assert {k for k in state if not k.startswith("queues.")} == set(shared)
    for key in shared:
        torch.testing.assert_close(state[key], other[key], rtol=1e-4, atol=1e-5, msg=key)
    for side, queue in enumerate(ours.queues):
        keys = theirs.queue[1 - side].T
        torch.testing.assert_close(queue.keys, keys, rtol=1e-5, atol=1e-5, check_dtype=False)


@pytest.mark.parametrize("kind, name", [(SimSiamHardness, "simsiam"), (BYOLHardness, "byol")])
def test_twenty_steps_without_the_weight_are_solo_learn_s(kind, name, solo_methods):
    settings = {"pred_hidden_dim": 4}
    ours, our_losses = train(kind, {**settings, "weighted": False})
    theirs, their_losses = train(solo_methods[name], settings)
    assert len(our_losses) == 20 and max(our_losses) - min(our_losses) > 1e-3
    # The probe's loss is computed in float32 here, in float64 there.
    assert our_losses == pytest.approx(their_losses, abs=1e-6)
    state, other = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(other)
    for key in other:
        torch.testing.assert_close(state[key], other[key], rtol=1e-5, atol=1e-6, msg=key)
    groups, their_groups = ours.learnable_params, theirs.learnable_params
    described = [{k: v for k, v in group.items() if k != "params"} for group in groups]
    assert described == [{k: v for k, v in g.items() if k != "params"} for g in their_groups]
    weighted, losses = train(kind, {**settings, "weighted": True})
    assert losses[0] != pytest.approx(our_losses[0], rel=1e-3)
    assert not torch.equal(weighted.backbone.conv1.weight, ours.backbone.conv1.weight)


def test_the_same_under_the_other_host():
    other = "builtin" if HOST == "solo-learn" else "solo-learn"
    select = ("-k", "test_twenty_steps", __file__)
    done = run_script("-m", "pytest", "-q", *select, cwd=ROOT, SIMCO_HOST=other)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout
