"""MoCo v2 with ``symmetric: true`` against solo-learn's own MoCo v2+, step by step."""

import pytest
import torch
from torch.utils.data import DataLoader

from simco_methods.host import HOST, BaseMethod
from simco_methods.methods import MoCoV2
from tests.helpers import ROOT, TINY_RESNET, Losses, batch, model_config, quiet_trainer, run_script

pytestmark = pytest.mark.solo_learn


def train(kind, **kwargs):
    # In float64, and not at a high rate: this tiny network doubles a rounding error many times in
    # 20 steps, and a flip of its max-pool would be seen in all that follow. Our queue is float32.
    cfg = model_config("mocov2", momentum__final_tau=1.0, max_epochs=4, optimizer__lr=0.01)
    cfg.method_kwargs = {"proj_hidden_dim": 16, "proj_output_dim": 8, "queue_size": 24, **kwargs}
    torch.manual_seed(0)
    model, losses = kind(cfg), Losses()
    trainer = quiet_trainer(max_epochs=4, precision="64-true", callbacks=[losses])
    trainer.fit(model, DataLoader([batch(seed=step) for step in range(5)], batch_size=None))
    return model, losses.seen


def test_twenty_steps_are_the_same():
    from solo.methods.base import BaseMethod as SoloBaseMethod
    from solo.methods.mocov2plus import MoCoV2Plus

    name = TINY_RESNET["name"]
    SoloBaseMethod._BACKBONES.setdefault(name, BaseMethod._BACKBONES[name])
    ours, our_losses = train(MoCoV2, tau=0.2, symmetric=True)
    theirs, their_losses = train(MoCoV2Plus, temperature=0.2)
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


def test_the_same_under_the_other_host():
    other = "builtin" if HOST == "solo-learn" else "solo-learn"
    test = f"{__file__}::test_twenty_steps_are_the_same"
    done = run_script("-m", "pytest", "-q", test, cwd=ROOT, SIMCO_HOST=other)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
