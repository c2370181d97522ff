"""Makes augmented views of images that lie on a device."""

from __future__ import annotations

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from simco_methods.compiling import compiled_if_possible
from simco_methods.data.augment import augment
from simco_methods.data.draws import ViewSettings, draw_views
from simco_methods.data.parameters import Parameters
from simco_methods.data.transforms import Preprocessing

_CPU_PIXELS = 2**17  # of the views that are made at a time, so that they stay in a core's cache
_GPU_PIXELS = 2**26  # of the images that are augmented at a time: some GiB in float32


class ViewMaker:
    """Makes the views of one entry of ``augmentations`` on the device.

    Args:
        entry: of the config.
        dataset: name of the data set, for its mean and standard deviation.
        device: where the pixels lie.
        memory_format: of the views.
        compiled: whether the augmentation is compiled.
    """

    def __init__(
        self,
        entry: DictConfig,
        dataset: str,
        device: torch.device,
        memory_format: torch.memory_format = torch.channels_last,
        compiled: bool = False,
    ):
        self.settings, self.device = ViewSettings.from_config(entry), device
        self._memory_format = memory_format
        self._augment = compiled_if_possible(augment, device) if compiled else augment
        self._compiled = compiled
        preprocessing = Preprocessing.of(dataset, entry)
        std = torch.tensor(preprocessing.std, device=device).view(3, 1, 1)
        mean = torch.tensor(preprocessing.mean, device=device).view(3, 1, 1)
        self._scale, self._shift = 1 / (255 * std), -mean / std

    def draw(self, sizes: np.ndarray, seed: int, *items: np.ndarray) -> Parameters:
        """Parameters of N views; arguments as of :func:`~simco_methods.data.draws.draw_views`."""
        draws = draw_views(self.settings, sizes, seed, *items)
        return Parameters.from_draws(self.settings, draws, self.device)

    @torch.no_grad()
    def make(self, pixels: Tensor, images: Tensor, parameters: Parameters) -> Tensor:
        """N normalised views, (N, 3, S, S) float32.

        Args:
            pixels: (M, H, 3, W) uint8, of all images.
            images: (N,) int64, which of them.
            parameters: of the N views.
        """
        size, count = self.settings.crop_size, len(images)
        shape = (count, 3, size, size)
        made = torch.empty(shape, device=self.device, memory_format=self._memory_format)
        if self._compiled:
            step = count  # of one static shape
        elif self.device.type == "cpu":
            step = max(1, _CPU_PIXELS // size**2)
        else:
            step = max(1, _GPU_PIXELS // (pixels.shape[1] * pixels.shape[3]))
        for first in range(0, count, step):
            rows = slice(first, first + step)
            view = self._augment(pixels[images[rows]], self.settings, parameters.rows(rows))
            torch.addcmul(self._shift, view.transpose(1, 2), self._scale, out=made[rows])
        return made
