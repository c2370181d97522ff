"""A checkpoint of Lightning's, saved where solo-learn's Checkpointer saves, continues exactly."""

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader

from simco_methods.host import LeanMomentumMethod
from simco_methods.methods import METHODS
from tests.helpers import VARIANTS, Losses, batch, build, quiet_trainer

EPOCHS, BATCHES = 3, 6
# Keys that are drawn from the queue are drawn alike after a resume.
DRAWN = {f"method_kwargs__{name}": {"order": "random", "size": 7} for name in ("vector", "scalar")}
CASES = [(*variant, {}) for variant in VARIANTS] + [("decoupled_moco", True, DRAWN)]


class Saves(pl.Callback):
    """A checkpoint at the end of each epoch, before the method's own hook for it is called."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_epoch_end(self, trainer, module):
        trainer.save_checkpoint(self.folder / f"{trainer.current_epoch}.ckpt")


class Coefficients(pl.Callback):
    """tau, the learning rate and where the momentum weights lie, after every batch."""

    def __init__(self):
        self.seen, self.places = [], set()

    def on_train_batch_start(self, trainer, module, *_):
        updater = getattr(module, "momentum_updater", None)
        rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
        self.seen.append((updater and updater.cur_tau, *rates))
        momentum = getattr(module, "momentum_backbone", None)
        self.places.add(momentum and tuple(p.data_ptr() for p in momentum.parameters()))


def has_tau(name):
    return issubclass(METHODS[name], LeanMomentumMethod)


def train(name, symmetric, settings, accumulate, folder, checkpoint=None):
    changes = {**settings, **({"momentum__final_tau": 1.0} if has_tau(name) else {})}
    # A resumed model begins with other weights: all has to come from the checkpoint.
    model = build(
        name,
        symmetric,
        seed=int(checkpoint is not None),
        max_epochs=EPOCHS,
        accumulate_grad_batches=accumulate,
        scheduler__warmup_epochs=1,
        **changes,
    )
    losses, coefficients = Losses(), Coefficients()
    trainer = quiet_trainer(
        max_epochs=EPOCHS,
        accumulate_grad_batches=accumulate,
        callbacks=[losses, coefficients, Saves(folder)],
    )
    batches = [batch(seed=step) for step in range(BATCHES)]
    trainer.fit(model, DataLoader(batches, batch_size=None), ckpt_path=checkpoint)
    assert len(coefficients.places) == 1  # the EMA works in place
    return model.state_dict(), losses.seen, coefficients.seen, trainer.global_step


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("name, symmetric, settings", CASES)
def test_continues_as_if_it_had_not_stopped(name, symmetric, settings, accumulate, tmp_path):
    case = name, symmetric, settings, accumulate
    for folder in ("straight", "resumed"):
        (tmp_path / folder).mkdir()
    state, losses, coefficients, steps = train(*case, tmp_path / "straight")
    assert steps == EPOCHS * BATCHES // accumulate and len(losses) == EPOCHS * BATCHES
    resumed = train(*case, tmp_path / "resumed", tmp_path / "straight" / "0.ckpt")
    assert resumed[1] == losses[BATCHES:]
    assert resumed[2] == coefficients[BATCHES:]
    assert resumed[3] == steps
    assert resumed[0].keys() == state.keys()
    assert not [key for key in state if not torch.equal(state[key], resumed[0][key])]
    if has_tau(name):
        taus = [tau for tau, *_ in coefficients]
        assert taus == sorted(taus) and len(set(taus)) == steps
    if "queues.0.pointer" in state:
        pointer = int(state["queues.0.pointer"])
        assert pointer == EPOCHS * BATCHES * 8 % 20
