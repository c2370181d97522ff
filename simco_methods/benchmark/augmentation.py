"""Both views of a batch: on the device, against torchvision's transforms image by image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from PIL import Image
from torchvision import transforms as T

from simco_methods.benchmark.timing import Comparison, in_turns, one_thread, unit
from simco_methods.data import folder_images
from simco_methods.data.images import ImageSet
from simco_methods.data.loaders import EpochSampler
from simco_methods.data.resident import DeviceLoader, ResidentImages

BATCH = 256


def pictures(folder: str | None, count: int) -> ImageSet:
    """``count`` images of a folder of class folders, or noise of 32 pixels where there is none."""
    if folder is not None and Path(folder).is_dir():
        found = folder_images(folder)
        chosen = found.select(np.linspace(0, len(found) - 1, count).astype(np.int64))
        arrays = np.stack([np.asarray(chosen.load(row)) for row in range(count)])
        return ImageSet(arrays, chosen.labels, chosen.classes)
    generator = np.random.default_rng(0)
    arrays = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return ImageSet(arrays, np.arange(count) % 10, [str(number) for number in range(10)])


def paper_view() -> DictConfig:
    """The augmentation of the CIFAR configs."""
    with initialize_config_module(version_base="1.3", config_module="solo_configs"):
        return compose("cifar10/simco").augmentations[0]


def torchvision_view(view: DictConfig) -> T.Compose:
    """As one writes it with torchvision."""
    jitter = view.color_jitter
    return T.Compose(
        [
            T.RandomResizedCrop(
                view.crop_size,
                scale=(view.rrc.crop_min_scale, view.rrc.crop_max_scale),
                interpolation=T.InterpolationMode.BICUBIC,
            ),
            T.RandomApply(
                [T.ColorJitter(jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)],
                p=jitter.prob,
            ),
            T.RandomGrayscale(view.grayscale.prob),
            T.RandomHorizontalFlip(view.horizontal_flip.prob),
            T.ToTensor(),
            T.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        ]
    )


def on_device(images: ImageSet, view: DictConfig, device: torch.device, compiled: bool = False):
    """A function that makes two views of a batch, again and again, draws included."""
    resident = ResidentImages(images, device)
    sampler = EpochSampler(len(images), BATCH, seed=0)
    loader = DeviceLoader(resident, sampler, "cifar10", [view], compiled=compiled)

    def batches():
        while True:
            yield from loader
            sampler.epoch += 1

    endless = batches()
    return lambda: next(endless)


def image_by_image(
    images: ImageSet, views: list[Callable[[Image.Image], torch.Tensor]]
) -> Callable[[], None]:
    """Two views of a batch with transforms, in this process, collated."""
    loaded = [images.load(row) for row in range(BATCH)]

    def make() -> None:
        for view in views:
            torch.stack([view(image) for image in loaded])

    return make


def compare(device: torch.device, folder: str | None, quick: bool = False) -> Iterator[Comparison]:
    """A core of the CPU on either side, or one of its cores against the GPU."""
    view = OmegaConf.merge(paper_view(), {"num_crops": 2})
    images = pictures(folder, BATCH if quick else 16 * BATCH)
    others = {"torchvision on Pillow images": [torchvision_view(view)] * 2}
    others |= _libraries(view)
    rounds = 2 if quick else 7
    what = f"two views of {BATCH} images, bicubic crops, true hue, one core"
    if device.type == "cuda":
        what = f"two views of {BATCH} images on the GPU, against a core"
    for name, transforms in others.items():
        with one_thread():
            times = in_turns(
                on_device(images, view, device), image_by_image(images, transforms), rounds
            )
        yield Comparison("augmentation", what, name, *times, unit(), 4.0)


def _libraries(view: DictConfig) -> dict[str, list[Callable]]:
    found: dict[str, list[Callable]] = {}
    try:
        from solo.data.pretrain_dataloader import build_transform_pipeline
    except ImportError:
        pass
    else:
        found["solo-learn's pipeline"] = [build_transform_pipeline("cifar10", view)] * 2
    try:
        from lightly.transforms import SimCLRTransform
    except ImportError:
        pass
    else:
        both = SimCLRTransform(
            input_size=view.crop_size,
            cj_bright=0.4,
            cj_contrast=0.4,
            cj_sat=0.4,
            cj_hue=0.1,
            gaussian_blur=0.0,
        )
        found["lightly's SimCLRTransform (bilinear)"] = list(both.transforms)
    return found
