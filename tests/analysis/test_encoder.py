"""The networks rebuilt from a checkpoint are those of the method, the pack's or solo-learn's."""

import pytest
import torch
from omegaconf import OmegaConf

from simco_methods.analysis.encoder import load_checkpoint, sequential_from
from simco_methods.config.parse import complete, parse
from simco_methods.files import write_json
from simco_methods.host import HOST
from simco_methods.losses import l2_normalize
from simco_methods.methods import METHODS, find_method
from tests.helpers import BASELINES, batch, compose_config
from tests.runner.test_pretrain import QUICK

NONE = OmegaConf.create({})
WITH_PROJECTOR = [name for name in METHODS if name != "supervised_hardness"]
THEIRS = [leaf.split("/")[-1] for leaf in BASELINES if leaf.startswith("digits/")]


def save(leaf, path, **changes):
    """A model that has seen a batch, so that its running statistics say something; its config."""
    cfg = compose_config(leaf)
    for key, value in {"backbone": QUICK["backbone"], **changes}.items():
        OmegaConf.update(cfg, key, value, force_add=True, merge=False)
    cfg = parse(complete(cfg), world_size=1)
    torch.manual_seed(0)
    model = find_method(cfg.method)(cfg)
    with torch.no_grad():
        for part in ("", "momentum_"):
            if hasattr(model, f"{part}projector"):
                images = batch(16)[1][0]
                getattr(model, f"{part}projector")(getattr(model, f"{part}backbone")(images))
    content = {"state_dict": model.state_dict(), "global_step": 3, "epoch": 0}
    torch.save(content, path)
    write_json(path.with_name("args.json"), OmegaConf.to_container(cfg))
    return model.eval()


def check(model, loaded):
    images = batch(5, seed=9)[1][0]
    with torch.no_grad():
        for prefix, network in (("", loaded.online), ("momentum_", loaded.momentum)):
            prefix = prefix if hasattr(model, f"{prefix}projector") else ""
            features = getattr(model, f"{prefix}backbone")(images)
            expected = l2_normalize(getattr(model, f"{prefix}projector")(features))
            found = network(images)
            torch.testing.assert_close(found[0], features, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(found[1], expected, rtol=1e-6, atol=1e-6)
            assert expected.std(dim=0).min() > 0
    assert loaded.has_momentum == hasattr(model, "momentum_projector")


@pytest.mark.parametrize("name", WITH_PROJECTOR)
def test_of_the_pack_s_methods(name, tmp_path):
    model = save(f"digits/{name}", tmp_path / "a.ckpt")
    check(model, load_checkpoint(tmp_path / "a.ckpt", NONE))


@pytest.mark.solo_learn
@pytest.mark.skipif(HOST != "solo-learn", reason="of the solo-learn host")
@pytest.mark.parametrize("name", THEIRS)
def test_of_solo_learn_s_methods(name, tmp_path):
    model = save(f"digits/baselines/{name}", tmp_path / "a.ckpt")
    check(model, load_checkpoint(tmp_path / "a.ckpt", NONE))


@pytest.mark.parametrize("dataset", ["cifar10", "digits"])
def test_the_stem_is_of_the_data_that_was_trained_on(dataset, tmp_path):
    changes = {"backbone": {"name": "resnet18"}, "data.dataset": dataset}
    model = save("digits/simco", tmp_path / "a.ckpt", **changes)
    assert model.backbone.conv1.kernel_size == ((3, 3) if dataset == "cifar10" else (7, 7))
    other = {"cifar10": "digits", "digits": "cifar10"}[dataset]
    loaded = load_checkpoint(tmp_path / "a.ckpt", OmegaConf.create({"data": {"dataset": other}}))
    assert dict(loaded.cfg.data) == {"dataset": other}  # nothing of the other's paths and counts
    check(model, loaded)


def test_a_projector_without_weights_or_layers_is_named():
    with pytest.raises(ValueError, match="projector has no linear layer"):
        sequential_from({"0.running_mean": torch.zeros(3)}, "projector")
    one = sequential_from({"weight": torch.ones(2, 3)}, "projector")
    assert one(torch.ones(1, 3)).tolist() == [[3, 3]]
