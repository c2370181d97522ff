"""What solo-learn's suite asks of each of its methods, asked of the pack's, under both hosts."""

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import FakeData
from torchvision.transforms import ToTensor

from simco_methods.host import LeanMomentumMethod
from simco_methods.methods import METHODS
from tests.helpers import MODULES, VARIANTS, batch, model_config, quiet_trainer

SIZES = {"imagenet100": (224, 100), "cifar10": (32, 10)}
LARS = {
    "name": "lars",
    "batch_size": 2,
    "lr": 0.3,
    "classifier_lr": 0.1,
    "weight_decay": 1e-5,
    "kwargs": {"momentum": 0.9},
}


def config(name, symmetric, dataset):
    return model_config(
        name,
        symmetric,
        backbone={"name": "resnet18"},
        data__dataset=dataset,
        data__num_classes=SIZES[dataset][1],
        optimizer=LARS,
        scheduler={"name": "warmup_cosine"},
        max_epochs=5,
    )


class Pairs(FakeData):
    """Random images as ``index, [view, view], target``."""

    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        return index, [image, image.flip(-1)], target


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_keys_and_shapes(name, symmetric):
    cfg = config(name, symmetric, "cifar10")
    model = METHODS[name](cfg)
    complete = cfg.copy()
    assert model.add_and_assert_specific_cfg(cfg) == complete  # complete already

    images = batch(2, size=32)[1][0]
    out = model(images)
    assert {key: tuple(value.shape) for key, value in out.items()} == {
        "logits": (2, 10),
        "feats": (2, model.features_dim),
        **({"z": (2, 8)} if hasattr(model, "projector") else {}),
        **({"p": (2, 8)} if hasattr(model, "predictor") else {}),
    }
    assert model.multicrop_forward(images)["feats"].shape == (2, 512) == out["feats"].shape
    if isinstance(model, LeanMomentumMethod):
        out = model.momentum_forward(images)
        assert out["feats"].shape == (2, 512) and out["z"].shape == (2, 8)
        assert not out["feats"].requires_grad and not out["z"].requires_grad
        assert [tuple(map(type, pair)) for pair in model.momentum_pairs] == [
            (type(model.backbone),) * 2,
            (type(model.projector),) * 2,
        ]


@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_learnable_params_are_all_that_needs_a_gradient_once(name, symmetric):
    model = METHODS[name](config(name, symmetric, "cifar10"))
    groups = model.learnable_params
    modules = MODULES.get(name, ["projector"])
    assert [group["name"] for group in groups] == ["backbone", "classifier", *modules]
    learnt = [id(p) for group in groups for p in group["params"]]
    assert len(learnt) == len(set(learnt))
    assert set(learnt) == {id(p) for p in model.parameters() if p.requires_grad}


@pytest.mark.parametrize("dataset", SIZES)
@pytest.mark.parametrize("name, symmetric", VARIANTS)
def test_trains_at_both_sizes(name, symmetric, dataset):
    size, classes = SIZES[dataset]
    model = METHODS[name](config(name, symmetric, dataset))
    before = {key: value.clone() for key, value in model.named_parameters()}
    trainer = quiet_trainer(max_epochs=5, fast_dev_run=True)
    options = {"image_size": (3, size, size), "num_classes": classes, "transform": ToTensor()}
    trainer.fit(
        model,
        DataLoader(Pairs(8, **options), batch_size=2, drop_last=True),
        DataLoader(FakeData(8, **options), batch_size=2),
    )
    moved = {k for k, p in model.named_parameters() if p.requires_grad} - {
        key for key, value in model.named_parameters() if torch.equal(value, before[key])
    }
    modules = MODULES.get(name, ["projector"])
    assert {key.split(".")[0] for key in moved} == {"backbone", "classifier", *modules}
    assert {"val_loss", "val_acc1", "val_acc5"} <= set(trainer.callback_metrics)
    assert torch.isfinite(
        torch.stack([v.reshape(()) for v in trainer.callback_metrics.values()])
    ).all()


def test_small_crops_are_refused():
    with pytest.raises(ValueError, match="6 views of another size.*simco does not support multi"):
        METHODS["simco"](model_config("simco", data__num_small_crops=6))
