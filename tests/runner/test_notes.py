"""What is said once at the start of a run, and what is not."""

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image

from simco_methods.config.parse import complete, parse
from simco_methods.data.images import ImageSet
from simco_methods.runner.notes import check_limits, notes, shorter_side
from tests.data.test_folders import fill
from tests.helpers import LEAVES, compose_config

IMAGES = {
    "digits": 1437,
    "cifar10": 50000,
    "cifar100": 50000,
    "svhn": 73257,
    "stl10": 105000,
    "imagenet100": 126689,
}


def said(leaf="digits/simco", train_images=1437, world_size=1, pixels=None, **changes):
    cfg = compose_config(leaf)
    for key, value in changes.items():
        OmegaConf.update(cfg, key.replace("__", "."), value, merge=False, force_add=True)
    parsed = parse(complete(cfg), world_size)
    return notes(parsed, train_images=train_images, world_size=world_size, pixels=pixels)


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if not leaf.startswith("custom")])
def test_nothing_is_said_of_a_leaf_as_it_stands(leaf):
    dataset, name = leaf.split("/")
    lines = said(leaf, IMAGES[dataset])
    if dataset.startswith("cifar") and "moco" in name and "sim" not in name:  # the paper's queue
        (line,) = lines
        assert "the queue of 65536 keys is larger than the data set of 50000 images" in line
    else:
        assert lines == []


def test_custom_images_that_are_few(tmp_path):
    lines = said("custom/mocov2", 1000, data__train_path=str(tmp_path), data__no_labels=True)
    assert len(lines) == 2 and lines[0].startswith("232 of 1000 images fill no batch of 256 x 1")
    assert lines[1].endswith("it is full after 86 epochs")
    assert said("custom/simco", 10**6, data__train_path=str(tmp_path), data__no_labels=True) == []


def test_class_folders_without_images_to_validate_on(tmp_path):
    fill(tmp_path, "a/0.png", "b/0.png")
    (line,) = said("custom/simco", 10**6, data__train_path=str(tmp_path))
    assert line.startswith("without data.val_path there is no accuracy; data.test_share=0.2 holds")
    assert said("custom/simco", 10**6, data__train_path=str(tmp_path), data__test_share=0.5) == []


@pytest.mark.parametrize(
    "leaf, images, processes, changes, line",
    [
        ("simco", 33, 2, {"optimizer__batch_size": 8}, "1 of 33 images fill no batch of 8 x 2"),
        ("mocov2", 1437, 1, {"method_kwargs__queue_size": 1500}, "larger than the data set"),
        ("mocov2", 1437, 1, {"method_kwargs__queue_size": 1420}, "than the 1408 that an epoch"),
        ("mocov2", 1437, 1, {"limit_train_batches": 2}, "full after 8 epochs"),
        ("mocov2", 1437, 1, {"limit_train_batches": 0.1, "max_epochs": 3}, "is never full"),
        ("simco", 1437, 1, {"accumulate_grad_batches": 2}, "gradients adds no negatives"),
        ("simco", 1437, 1, {"accumulate_grad_batches": 30}, "than the 22 batches of an epoch"),
        ("simco", 1437, 1, {"method_kwargs__tau_beta": 0.05}, "tau_beta=0.05 is below method"),
        ("simco", 1437, 1, {"scheduler__warmup_epochs": 30}, "reaches 50% of the way"),
        ("simco", 1437, 1, {"optimizer__lr": 0}, "the backbone is not trained"),
        ("simco", 1437, 1, {"check_val_every_n_epoch": 99}, "only the last epoch is validated"),
        ("simco", 1437, 1, {"knn_eval__k": 2000}, "knn_eval.k=2000 is more than the 1437"),
        ("mocov2", 1437, 2, {"optimizer__batch_size": 1}, "each process a single anchor"),
    ],
)
def test_is_said(leaf, images, processes, changes, line):
    if changes.get("optimizer__batch_size") == 1:  # without batch norm
        vit = {"name": "vit_tiny", "kwargs": {"img_size": 16, "patch_size": 8}}
        changes = {**changes, "backbone": vit}
    lines = said(f"digits/{leaf}", images, processes, **changes)
    assert any(line in note for note in lines)
    assert all("\n" not in note for note in lines)


def test_of_the_queue_counts_what_is_read():
    few = {"negatives": "queue", "size": 256, "order": "recent", "tau": 0.1}
    both = {"method_kwargs__vector": few, "method_kwargs__scalar": few}
    assert said("digits/decoupled_moco", method_kwargs__queue_size=4096, **both) == []
    both["method_kwargs__scalar"] = {**few, "order": "random"}
    (line,) = said("digits/decoupled_moco", method_kwargs__queue_size=4096, **both)
    assert "the queue of 4096 keys" in line
    batch = {"negatives": "batch", "tau": 0.1}
    both = {"method_kwargs__vector": batch, "method_kwargs__scalar": {**batch, "tau": 0.05}}
    (line,) = said("digits/decoupled_moco", method_kwargs__queue_size=4096, **both)
    assert "method_kwargs.scalar.tau=0.05 is below method_kwargs.vector.tau=0.1" in line


def test_a_share_of_less_than_a_batch():
    cfg = complete(compose_config("digits/simco", "++limit_train_batches=0.01"))
    with pytest.raises(ValueError, match="limit_train_batches=0.01 of 22 batches is less than one"):
        check_limits(cfg, train_images=1437, val_images=360, world_size=1)
    cfg.limit_train_batches, cfg.limit_val_batches = 0.0455, 0.1
    with pytest.raises(ValueError, match="limit_val_batches=0.1 of 6 batches.*take 0.1667 or more"):
        check_limits(cfg, train_images=1437, val_images=360, world_size=1)
    check_limits(cfg, train_images=1437, val_images=0, world_size=1)


@pytest.mark.parametrize(
    "pixels, size",
    [(32, "32 backbone.name=resnet18_small"), (64, "64 backbone.name=resnet18_small"), (100, "96")],
)
def test_images_smaller_than_the_crops(pixels, size, tmp_path):
    given = {"data__train_path": str(tmp_path), "data__no_labels": True}
    (line,) = said("custom/simco", 10**6, pixels=pixels, **given)
    assert line.startswith(f"the images are smaller than the crops: {pixels} pixels")
    assert "enlarged to 224" in line and f"set augmentations=crop{size}" in line
    assert said("custom/simco", 10**6, pixels=112, **given) == []
    own = {"backbone__name": "micro_resnet", **given}
    (line,) = said("custom/simco", 10**6, pixels=pixels, **own)
    assert "backbone" not in line


def test_the_size_of_images_is_the_median_of_their_shorter_sides(tmp_path):
    paths = []
    for number, shape in enumerate([(30, 40), (32, 32), (500, 32), (700, 900), (20, 20)]):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", shape).save(path)
        paths.append(str(path))
    (tmp_path / "broken.png").write_bytes(b"none")
    paths.append(str(tmp_path / "broken.png"))
    assert shorter_side(ImageSet(paths, np.zeros(6), [])) == 32
    assert shorter_side(ImageSet(paths[-1:], np.zeros(1), [])) is None
    assert shorter_side(ImageSet(np.zeros((7, 8, 9, 3), np.uint8), np.zeros(7), [])) == 8
