"""Draws as the tensors that the arithmetic on a batch reads."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from simco_methods.data.draws import CONTRAST, HUE, SATURATION, ViewDraws, ViewSettings

BLUR_PASSES, BLUR_REACH = 3, 2  # Pillow's; a box of the largest radius reaches 2 pixels


@dataclass(frozen=True)
class Parameters:
    """Draws as the tensors that the arithmetic reads, (N, ...) on the device, floats and flags.

    The three blends stand in front of the change of hue or behind it, where an image's order has
    them; a place that an image does not need has the factor 1.

    Attributes:
        box: (N, 4) top, left, height, width.
        flipped, gray, solarized, equalized: (N,) bool.
        factor, to_gray, to_mean: (N, P) a blend's factor, and 1 - factor where it is towards the
            gray image (saturation) or towards its mean (contrast), else 0; P places, the first
            half before the hue.
        hue: (N,) shift in sixths of the circle.
        radius: (N,) of the boxes that make the blur.
    """

    box: Tensor
    flipped: Tensor
    gray: Tensor
    solarized: Tensor
    equalized: Tensor
    factor: Tensor
    to_gray: Tensor
    to_mean: Tensor
    hue: Tensor
    radius: Tensor

    @classmethod
    def from_draws(
        cls, settings: ViewSettings, draws: ViewDraws, device: torch.device
    ) -> Parameters:
        factor, to_gray, to_mean = _blends(settings, draws)
        hue = np.where(draws.jittered, 6 * draws.factors[:, HUE], 0.0)
        numbers = {
            "box": draws.box,
            "factor": factor,
            "to_gray": to_gray,
            "to_mean": to_mean,
            "hue": hue,
            "radius": _box_radius(draws.radius),
        }
        flags = {
            "flipped": draws.flipped,
            "gray": draws.gray,
            "solarized": draws.solarized,
            "equalized": draws.equalized,
        }
        arrays = {name: array.astype(np.float32) for name, array in numbers.items()} | flags
        # Pinned, so that the copy waits for nothing that the device still has to do.
        pinned = device.type == "cuda"
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return cls(
            **{
                name: (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=True)
                for name, tensor in tensors.items()
            }
        )

    def rows(self, rows: slice) -> Parameters:
        """Those of the images at ``rows``."""
        return Parameters(*(getattr(self, field.name)[rows] for field in fields(self)))


def _blends(settings: ViewSettings, draws: ViewDraws) -> tuple[np.ndarray, ...]:
    """Factor and its rest towards gray and towards the mean, of each place, (N, P)."""
    kinds = [kind for kind in range(HUE) if settings.amounts[kind] and settings.jitter]
    halves = 2 if settings.amounts[HUE] and settings.jitter else 1
    places = len(kinds)
    shape = (len(draws), halves * places)
    factor, to_gray, to_mean = np.ones(shape), np.zeros(shape), np.zeros(shape)
    taken = np.zeros((len(draws), halves), dtype=np.int64)
    half = np.zeros(len(draws), dtype=np.int64)
    every = np.arange(len(draws))
    for step in range(draws.order.shape[1]):
        change = draws.order[:, step]
        for kind in kinds:
            row = every[(change == kind) & draws.jittered]
            place = half[row] * places + taken[row, half[row]]
            drawn = draws.factors[row, kind]
            factor[row, place] = drawn
            to_gray[row, place] = (1 - drawn) * (kind == SATURATION)
            to_mean[row, place] = (1 - drawn) * (kind == CONTRAST)
            taken[row, half[row]] += 1
        if halves == 2:
            half = half | (change == HUE)
    return factor, to_gray, to_mean


def _box_radius(sigma: np.ndarray) -> np.ndarray:
    """Radius of the box that, applied three times, is Pillow's Gaussian blur of ``sigma``."""
    variance = sigma**2 / BLUR_PASSES
    whole = np.floor((np.sqrt(12 * variance + 1) - 1) / 2)
    rest = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance)
    return whole + rest / (6 * (variance - (whole + 1) ** 2))
