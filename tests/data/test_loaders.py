"""Order and augmentation: functions of seed, epoch, image and view, and of nothing else."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image
from torchvision import transforms as T

from simco_methods.data import ImageSet, PretrainData
from simco_methods.data.loaders import EpochSampler
from simco_methods.data.transforms import eval_transform, view_transform
from tests.helpers import compose_config

PAPER_VIEW = compose_config("cifar10/simco").augmentations[0]


def images(count=40, size=12, same=False):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (1 if same else count, size, size, 3), dtype=np.uint8)
    pixels = np.repeat(pixels, count, axis=0) if same else pixels
    return ImageSet(pixels, np.arange(count) % 4, list("abcd"))


def module(train, batch_size=8, workers=0, rank=0, world=1, seed=5, val=None, crop=16):
    view = OmegaConf.merge(PAPER_VIEW, {"crop_size": crop, "num_crops": 2})
    cfg = OmegaConf.create(
        {
            "seed": seed,
            "data": {"dataset": "custom", "num_workers": workers},
            "optimizer": {"batch_size": batch_size},
            "augmentations": [view],
        }
    )
    data = PretrainData(cfg, train, val)
    data.trainer = SimpleNamespace(global_rank=rank, world_size=world)
    return data


def epoch(data, number):
    loader = data.train_dataloader()
    loader.sampler.set_epoch(number)
    return list(loader)


def views_by_image(batches):
    return {
        int(index): torch.stack([views[0][row], views[1][row]])
        for indices, views, _ in batches
        for row, index in enumerate(indices)
    }


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_draws_do_not_depend_on_workers_batches_or_processes():
    whole = views_by_image(epoch(module(images()), 3))
    assert same(whole, views_by_image(epoch(module(images(), workers=2), 3)))
    assert same(whole, views_by_image(epoch(module(images(), batch_size=20), 3)))
    ranks = [epoch(module(images(), batch_size=4, rank=r, world=2), 3) for r in (0, 1)]
    assert same(whole, views_by_image(ranks[0]) | views_by_image(ranks[1]))


def test_two_processes_see_the_batches_of_one():
    whole = [indices for indices, *_ in epoch(module(images()), 1)]
    ranks = [epoch(module(images(), batch_size=4, rank=r, world=2), 1) for r in (0, 1)]
    for batch, first, second in zip(whole, *ranks, strict=True):
        assert torch.equal(batch, torch.cat([first[0], second[0]]))


def test_epochs_and_seeds_differ_and_repeat():
    data = module(images(), workers=2)
    loader = data.train_dataloader()  # one loader: its workers persist
    runs = []
    for number in (0, 1, 0):
        loader.sampler.set_epoch(number)
        runs.append(list(loader))
    views = [views_by_image(batches) for batches in runs]
    assert same(views[0], views[2]) and not same(views[0], views[1])
    assert not torch.equal(runs[0][0][0], runs[1][0][0])
    assert not same(views[0], views_by_image(epoch(module(images(), seed=6), 0)))


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    dataset = module(images()).train_dataloader().dataset
    dataset[(0, 0)]
    assert torch.equal(torch.rand(3), expected)


def test_copies_of_one_image_give_different_views():
    batches = epoch(module(images(64, same=True), batch_size=64), 0)
    views = torch.cat(batches[0][1])
    distance = torch.cdist(views.flatten(1), views.flatten(1)) + torch.eye(128) * 1e9
    assert distance.min() > 1e-3


def test_rates_are_the_configured_ones():
    """Grayscale and flip of 4,000 views, within 3 sigma of 0.2 and 0.5."""
    cfg = OmegaConf.merge(
        PAPER_VIEW, {"rrc": {"enabled": False}, "color_jitter": {"prob": 0.0}, "crop_size": 2}
    )
    transform = view_transform("custom", cfg)
    pixels = np.array([[[255, 0, 0], [0, 255, 0]], [[255, 0, 0], [0, 255, 0]]], dtype=np.uint8)
    torch.manual_seed(0)
    views = torch.stack([transform(Image.fromarray(pixels)) for _ in range(4000)])
    plain = views * torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    plain += torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    gray = (plain[:, 0] - plain[:, 1]).abs().flatten(1).amax(1) < 1e-3
    flipped = plain[:, 1, 0, 0] > plain[:, 1, 0, 1]
    for seen, rate in ((gray, 0.2), (flipped, 0.5)):
        sigma = (rate * (1 - rate) / len(seen)) ** 0.5
        assert abs(seen.float().mean() - rate) < 3 * sigma


def test_too_few_images_for_a_batch_are_an_error():
    data = module(images(10))
    data.check_size(1)
    with pytest.raises(ValueError, match="one batch needs 16 images.*on 2 process.*has 10"):
        data.check_size(2)
    sampler = EpochSampler(33, 8, seed=0, rank=1, world_size=2)
    assert len(sampler) == len(list(sampler)) == 16


@pytest.mark.parametrize("world", [1, 2, 3])
def test_validation_sees_each_image_once(world):
    seen = []
    for rank in range(world):
        data = module(images(), rank=rank, world=world, val=images(11))
        seen += [label for _, labels in data.val_dataloader() for label in labels.tolist()]
    assert sorted(seen) == sorted(images(11).labels.tolist())


def test_bank_holds_labelled_images_only():
    train = images()
    train.labels[::2] = -1
    data = module(train)
    labels = torch.cat([targets for _, targets in data.bank_dataloader()])
    assert len(labels) == 20 and labels.min() >= 0


@pytest.mark.parametrize(
    "size, crop", [((32, 32), 32), ((10, 300), 32), ((8, 8), 16), ((300, 200), 224)]
)
def test_validation_is_at_the_training_size(size, crop):
    cfg = OmegaConf.merge(PAPER_VIEW, {"crop_size": crop})
    for transform in (eval_transform("custom", cfg), view_transform("custom", cfg)):
        assert transform(Image.new("RGB", size)).shape == (3, crop, crop)


def test_square_images_are_validated_whole():
    cfg = OmegaConf.merge(PAPER_VIEW, {"crop_size": 32})
    image = Image.fromarray(images(1, 32).images[0])
    expected = T.Compose(
        [T.ToTensor(), T.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))]
    )(image)
    torch.testing.assert_close(eval_transform("cifar10", cfg)(image), expected)
