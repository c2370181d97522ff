"""One method on two hosts: the same losses, the same weights, and checkpoints that move across.

Each host works in a process of its own: this module, run as a script.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from simco_methods.host import HOST
from tests.helpers import (
    ROOT,
    TINY_RESNET,
    VARIANTS,
    Losses,
    batch,
    build,
    quiet_trainer,
    run_script,
)

HOSTS = ("builtin", "solo-learn")
CASES = {
    f"{name}-symmetric" if symmetric else name: (name, symmetric) for name, symmetric in VARIANTS
}
BACKBONES = {
    "micro_resnet": (TINY_RESNET, 16),
    "resnet18": ({"name": "resnet18"}, 32),
    "resnet50_small": ({"name": "resnet50_small"}, 16),
    "vit_tiny": ({"name": "vit_tiny", "kwargs": {"img_size": 32, "patch_size": 8}}, 32),
    "swin_tiny": ({"name": "swin_tiny"}, 224),
    "convnext_tiny": ({"name": "convnext_tiny"}, 64),
}
STEPS = 20


def make(case, backbone, size):
    name, symmetric = CASES[case]
    return build(name, symmetric, backbone=backbone, data__dataset="cifar10", max_epochs=4)


def train(case, out):
    """Twenty steps over the same batches; leaves the losses and a checkpoint of Lightning's."""
    model, losses = make(case, TINY_RESNET, 16), Losses()
    trainer = quiet_trainer(max_epochs=4, callbacks=[losses])
    batches = [batch(seed=step) for step in range(STEPS // 4)]
    trainer.fit(model, DataLoader(batches, batch_size=None))
    torch.save(losses.seen, out / f"{case}-losses.pt")
    trainer.save_checkpoint(out / f"{case}.ckpt")


@torch.no_grad()
def features(model, size):
    out = model.eval()(batch(4, seed=99, size=size)[1][0])
    return {name: value for name, value in out.items() if name != "logits"}


def load(case, own, other):
    """The features of the other host's checkpoint on this one."""
    model = make(case, TINY_RESNET, 16)
    checkpoint = torch.load(other / f"{case}.ckpt", weights_only=True)
    model.load_state_dict(checkpoint["state_dict"], strict=True)
    torch.save(features(model, 16), own / f"{case}-loaded.pt")


def main(phase, out):
    import solo.backbones  # noqa: F401, puts models under timm's names: the built-in host has its own

    own, other = Path(out, HOST), Path(out, *[host for host in HOSTS if host != HOST])
    own.mkdir(exist_ok=True)
    for case in CASES:
        if phase == "train":
            train(case, own)
            model = make(case, TINY_RESNET, 16)
            model.load_state_dict(torch.load(own / f"{case}.ckpt")["state_dict"], strict=True)
            torch.save(features(model, 16), own / f"{case}-features.pt")
        else:
            load(case, own, other)
    for name, (backbone, size) in BACKBONES.items():
        model = make("simco", backbone, size)
        if phase == "train":
            torch.save(model.state_dict(), own / f"{name}-state.pt")
            torch.save(features(model, size), own / f"{name}-features.pt")
        else:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()  # so that all of it has to come from the file
            model.load_state_dict(torch.load(other / f"{name}-state.pt"), strict=True)
            torch.save(features(model, size), own / f"{name}-loaded.pt")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """``results(host, file)``: what the process of that host left."""
    out = tmp_path_factory.mktemp("hosts")
    for phase in ("train", "load"):
        for host in HOSTS:
            command = ("-m", "tests.host.test_equality", phase, out)
            done = run_script(*command, cwd=ROOT, SIMCO_HOST=host)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return lambda host, file: torch.load(out / host / file, weights_only=True)


@pytest.mark.solo_learn
class TestBothHosts:
    @pytest.mark.parametrize("case", CASES)
    def test_the_same_losses_and_weights(self, case, results):
        ours, theirs = (results(host, f"{case}-losses.pt") for host in HOSTS)
        assert len(ours) == STEPS and len(set(ours)) > STEPS // 2
        assert ours == theirs
        ours, theirs = (results(host, f"{case}.ckpt")["state_dict"] for host in HOSTS)
        assert list(ours) == list(theirs)
        assert not [key for key in ours if not torch.equal(ours[key], theirs[key])]

    @pytest.mark.parametrize("name", [*CASES, *BACKBONES])
    @pytest.mark.parametrize("host", HOSTS)
    def test_checkpoints_move_across(self, host, name, results):
        other = HOSTS[1 - HOSTS.index(host)]
        loaded, original = results(host, f"{name}-loaded.pt"), results(other, f"{name}-features.pt")
        for key, value in original.items():
            assert value.std() > 0
            torch.testing.assert_close(loaded[key], value, rtol=1e-6, atol=1e-6)


if __name__ == "__main__":
    main(*sys.argv[1:])
