"""Order and augmentation: functions of seed, epoch, image and view, and of nothing else."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image
from torchvision import transforms as T

import simco_methods.data.resident as resident
from simco_methods.data import ImageSet, PretrainData
from simco_methods.data.draws import ViewSettings, draw_views
from simco_methods.data.loaders import EpochSampler
from simco_methods.data.resident import DoesNotFit
from simco_methods.data.transforms import Preprocessing, pillow_view
from tests.helpers import compose_config
from tests.methods.test_no_wait import Waits

PAPER_VIEW = compose_config("cifar10/simco").augmentations[0]


def images(count=40, size=12, same=False):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (1 if same else count, size, size, 3), dtype=np.uint8)
    pixels = np.repeat(pixels, count, axis=0) if same else pixels
    return ImageSet(pixels, np.arange(count) % 4, list("abcd"))


# How views are made: by workers or on the device.
LOADERS = pytest.mark.parametrize("loader", ["workers", "device"])


def module(
    train, batch_size=8, workers=0, rank=0, world=1, seed=5, val=None, crop=16, loader="workers"
):
    view = OmegaConf.merge(PAPER_VIEW, {"crop_size": crop, "num_crops": 2})
    cfg = OmegaConf.create(
        {
            "seed": seed,
            "data": {"dataset": "custom", "num_workers": workers, "loader": loader},
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


@LOADERS
def test_draws_do_not_depend_on_workers_batches_or_processes(loader):
    options = {"loader": loader}
    whole = views_by_image(epoch(module(images(), **options), 3))
    workers = 2 if loader == "workers" else 0
    assert same(whole, views_by_image(epoch(module(images(), workers=workers, **options), 3)))
    assert same(whole, views_by_image(epoch(module(images(), batch_size=20, **options), 3)))
    ranks = [epoch(module(images(), batch_size=4, rank=r, world=2, **options), 3) for r in (0, 1)]
    assert same(whole, views_by_image(ranks[0]) | views_by_image(ranks[1]))


def test_both_loaders_make_the_same_views():
    """But for Pillow's whole numbers after each step and its 256 hues."""
    worker, device = (
        epoch(module(images(size=24), loader=loader), 2) for loader in ("workers", "device")
    )
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    for (indices, views, labels), (others, made, targets) in zip(worker, device, strict=True):
        assert torch.equal(indices, others) and torch.equal(labels, targets)
        for view, other in zip(views, made, strict=True):
            difference = ((view - other) * std * 255).abs()
            assert difference.mean() < 3 and difference.quantile(0.99) < 12
            assert other.is_contiguous(memory_format=torch.channels_last)


@LOADERS
def test_two_processes_see_the_batches_of_one(loader):
    whole = [indices for indices, *_ in epoch(module(images(), loader=loader), 1)]
    ranks = [
        epoch(module(images(), batch_size=4, rank=r, world=2, loader=loader), 1) for r in (0, 1)
    ]
    for batch, first, second in zip(whole, *ranks, strict=True):
        assert torch.equal(batch, torch.cat([first[0], second[0]]))


@LOADERS
def test_epochs_and_seeds_differ_and_repeat(loader):
    workers = 2 if loader == "workers" else 0
    data = module(images(), workers=workers, loader=loader)
    batches = data.train_dataloader()  # one loader: its workers persist
    runs = []
    for number in (0, 1, 0):
        batches.sampler.set_epoch(number)
        runs.append(list(batches))
    views = [views_by_image(batches) for batches in runs]
    assert same(views[0], views[2]) and not same(views[0], views[1])
    assert not torch.equal(runs[0][0][0], runs[1][0][0])
    assert not same(views[0], views_by_image(epoch(module(images(), seed=6, loader=loader), 0)))


@LOADERS
def test_the_global_random_state_is_left_alone(loader):
    batches = module(images(), loader=loader).train_dataloader()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    if loader == "workers":
        batches.dataset[(0, 0)]  # DataLoader itself draws a seed
    else:
        list(batches)
    assert torch.equal(torch.rand(3), expected)


@LOADERS
def test_copies_of_one_image_give_different_views(loader):
    batches = epoch(module(images(64, same=True), batch_size=64, loader=loader), 0)
    views = torch.cat(batches[0][1])
    distance = torch.cdist(views.flatten(1), views.flatten(1)) + torch.eye(128) * 1e9
    assert distance.min() > 1e-3


def test_making_views_waits_for_nothing():
    """Of what would make a GPU's host wait, only the labels' and the order's copies an epoch."""
    data = module(images(), loader="device")
    data.cfg.augmentations[0].merge_with(
        {"gaussian_blur": {"prob": 0.5}, "solarization": {"prob": 0.5}}
    )
    data.cfg.augmentations[0].merge_with({"equalization": {"prob": 0.5}})
    batches = iter(data.train_dataloader())
    next(batches)
    with Waits() as waits:
        next(batches)
    assert not waits.seen


def test_the_draws_of_a_long_epoch_are_those_of_a_short_one(monkeypatch):
    """They are made some batches ahead."""
    whole = views_by_image(epoch(module(images(), loader="device"), 3))
    monkeypatch.setattr(resident, "_AHEAD", 2)
    assert same(whole, views_by_image(epoch(module(images(), loader="device"), 3)))


def test_images_of_several_sizes_lie_on_the_device(tmp_path):
    paths = []
    for number in range(16):
        paths.append(str(tmp_path / f"{number}.png"))
        pixels = images(1, 8 + number).images[0][: 20 - number]
        Image.fromarray(pixels).save(paths[-1])
    several = ImageSet(paths, np.zeros(16, dtype=np.int64), ["a"])
    worker, device = (
        views_by_image(epoch(module(several, loader=loader), 0)) for loader in ("workers", "device")
    )
    for index, views in worker.items():
        assert ((views - device[index]) * 0.225 * 255).abs().mean() < 3


def test_images_that_do_not_fit_are_left_to_workers_or_refused(monkeypatch):
    monkeypatch.setattr(resident, "free_memory", lambda device: 3 * 40 * 12 * 12 * 3 - 3)
    why = "40 images of 12 x 12 pixels need 0 MiB, a third of what is free for a process on cpu"
    data = module(images(), loader="auto", val=images(41))
    data.choose_loader()
    assert data.resident is None and why in data.loader
    assert len(epoch(data, 0)) == 5
    assert isinstance(data.val_dataloader(), torch.utils.data.DataLoader)
    with pytest.raises(DoesNotFit, match="data.loader=device: 40 images"):
        module(images(), loader="device").choose_loader()


def test_processes_share_a_cpu_s_memory(monkeypatch):
    monkeypatch.setattr(resident, "free_memory", lambda device: 3 * 40 * 12 * 12 * 3)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    resident.check_fits(40, 12, 12, cpu)
    resident.check_fits(40, 12, 12, gpu, processes=2)
    with pytest.raises(DoesNotFit):
        resident.check_fits(40, 12, 12, cpu, processes=2)


def folder_of(folder, sizes):
    paths = [str(folder / f"{number}.png") for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        Image.new("RGB", size).save(path)
    return ImageSet(paths, np.zeros(len(sizes), dtype=np.int64), ["a"])


@pytest.mark.parametrize(
    "sizes, why",
    [
        ([(300, 280)] * 8, "0.png has 280 x 300 pixels: of images above 128 x 128"),
        ([(20, 20)] * 8 + [(60, 40)], "unlike sizes: .* the largest, 40 x 60 pixels"),
    ],
)
def test_what_would_be_slower_on_the_device_is_left_to_workers(sizes, why, tmp_path):
    several = folder_of(tmp_path, sizes)
    data = module(several, loader="auto")
    data.choose_loader()
    assert data.resident is None and re.search(why, data.loader)
    asked = module(several, loader="device")
    asked.choose_loader()
    assert asked.resident.pixels.shape[0] == len(sizes)


def test_a_picture_that_is_not_of_its_header_s_size_is_named(tmp_path, monkeypatch):
    several = folder_of(tmp_path, [(20, 20)] * 4)
    monkeypatch.setattr(ImageSet, "size", lambda self, index: (20, 10))
    why = "png: it is 20 x 20 pixels large, a moment ago its header said 10 x 20"
    with pytest.raises(OSError, match=why):
        resident.ResidentImages(several, torch.device("cpu"))


def test_files_are_decoded_in_chunks(tmp_path, monkeypatch):
    several = folder_of(tmp_path, [(20, 10)] * 7)
    whole = resident.ResidentImages(several, torch.device("cpu")).pixels
    monkeypatch.setattr(resident, "_CHUNK", 3)
    assert torch.equal(whole, resident.ResidentImages(several, torch.device("cpu")).pixels)


def test_headers_are_read_only_as_far_as_needed(monkeypatch):
    many = images(40)
    many.images = [f"{number}.jpg" for number in range(40)]
    asked = []
    monkeypatch.setattr(ImageSet, "size", lambda self, index: asked.append(index) or (900, 900))
    monkeypatch.setattr(resident, "free_memory", lambda device: 2**20)
    with pytest.raises(DoesNotFit, match="40 images of 900 x 900"):
        resident.ResidentImages(many, torch.device("cpu"))
    assert asked == [0]


def test_too_few_images_for_a_batch_are_an_error():
    data = module(images(10))
    data.check_size(1)
    with pytest.raises(ValueError, match="16 images.*on 2 process.*has 10: set .*=5 or less"):
        data.check_size(2)
    sampler = EpochSampler(33, 8, seed=0, rank=1, world_size=2)
    assert len(sampler) == len(list(sampler)) == 16


@LOADERS
@pytest.mark.parametrize("world", [1, 2, 3])
def test_validation_sees_each_image_once(world, loader):
    seen = []
    for rank in range(world):
        data = module(images(), rank=rank, world=world, val=images(11), loader=loader)
        seen += [label for _, labels in data.val_dataloader() for label in labels.tolist()]
    assert sorted(seen) == sorted(images(11).labels.tolist())


@pytest.mark.parametrize("size", [12, 16, 40])
def test_cached_validation_images_are_those_of_the_workers(size):
    sides = [
        list(module(images(), val=images(11, size), loader=loader).val_dataloader())
        for loader in ("workers", "device")
    ]
    for (expected, labels), (found, targets) in zip(*sides, strict=True):
        assert torch.equal(expected, found) and torch.equal(labels, targets)


@LOADERS
def test_bank_holds_labelled_images_only(loader):
    train = images()
    train.labels[::2] = -1
    data = module(train, loader=loader)
    batches = list(data.bank_dataloader())
    labels = torch.cat([targets for _, targets in batches])
    assert labels.tolist() == train.labels[1::2].tolist()
    assert len(data.bank_dataloader()) == len(batches)


def test_validation_images_are_kept_and_the_bank_is_not():
    data = module(images(), loader="device", val=images(11))
    assert data.val_dataloader() is data.val_dataloader()
    assert data.bank_dataloader() is not data.bank_dataloader()
    data.trainer.world_size = 2
    assert len(data.val_dataloader().labels) == 6
    data.trainer = None
    assert len(data.val_dataloader().labels) == 11


@pytest.mark.parametrize(
    "size, crop", [((32, 32), 32), ((10, 300), 32), ((8, 8), 16), ((300, 200), 224)]
)
def test_validation_is_at_the_training_size(size, crop):
    settings = ViewSettings.from_config(OmegaConf.merge(PAPER_VIEW, {"crop_size": crop}))
    image = Image.new("RGB", size)
    draws = draw_views(settings, np.array([size[::-1]]), 0, [0], [0], [0]).rows(0)
    for view in (
        Preprocessing.of("custom", {"crop_size": crop}).view(image),
        pillow_view(image, settings, draws),
    ):
        assert view.size == (crop, crop)


def test_square_images_are_validated_whole():
    image = Image.fromarray(images(1, 32).images[0])
    expected = T.Compose(
        [T.ToTensor(), T.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))]
    )(image)
    preprocessing = Preprocessing.of("cifar10", PAPER_VIEW)
    found = preprocessing(image)
    torch.testing.assert_close(found, expected)
    assert preprocessing.inverse(found).tobytes() == image.tobytes()


@pytest.mark.parametrize(
    "cores, wanted, processes, workers, said",
    [
        (2, 4, 1, 2, "2 worker processes (data.num_workers=4, on 2 CPU cores)"),
        (1, 4, 1, 1, "1 worker process (data.num_workers=4, on 1 CPU cores)"),
        (8, 4, 4, 2, "2 worker processes (data.num_workers=4, on 8 CPU cores)"),
        (8, 4, 1, 4, "4 worker processes"),
        (2, 0, 4, 0, "the process that trains"),
    ],
)
def test_there_are_no_more_workers_than_cores(cores, wanted, processes, workers, said, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(cores), raising=False)
    data = module(images(), loader="workers", workers=wanted)
    data.processes = processes
    data.choose_loader()
    assert data.loader == f"images are read as they are needed, by {said}"
    assert data.train_dataloader().num_workers == workers


def test_images_in_memory_are_said_to_be():
    data = module(images(), loader="device")
    data.choose_loader()
    assert data.loader == "images are held in memory, 1 MiB"
