"""The augmentations of a whole batch of tensors, each image by its own draws.

Nothing here depends on the draws' values but through arithmetic, so that shapes are static and
nothing is read back from the device. Pixels are (N, H, 3, W) from 0 to 255: so the two passes of a
resize are one batched matrix product each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from simco_methods.data.draws import HUE, ViewSettings
from simco_methods.data.parameters import BLUR_REACH, Parameters
from simco_methods.data.transforms import SOLARIZE_FROM

_LUMA = 0.299, 0.587, 0.114  # ITU-R 601, as Pillow's mode L
_BINS = 256


def augment(pixels: Tensor, settings: ViewSettings, p: Parameters) -> Tensor:
    """One view of each image, in the order of :func:`~simco_methods.data.transforms.pillow_view`.

    Crops, blur and the changes of colour are Pillow's but for its rounding to whole numbers after
    each step, which is done here after a resize only, and but for the hue, which Pillow knows in
    256 steps.

    Args:
        pixels: (N, H, 3, W) uint8.
        settings: of the view; a step without probability is left out.
        p: parameters of these images.

    Returns:
        (N, S, 3, S) float32 from 0 to 255, S the crop's size.
    """
    size, height, width = settings.crop_size, pixels.shape[1], pixels.shape[3]
    top, left, box_height, box_width = p.box.unbind(1)
    flipped = p.flipped if settings.flip else None
    rows = resize_weights(top, box_height, height, size, settings.interpolation)
    columns = resize_weights(left, box_width, width, size, settings.interpolation, flipped)
    x = _separable(pixels.float(), rows, columns)
    if settings.jitter:
        _jitter(x, settings, p)
    if settings.gray:
        x = torch.where(_each(p.gray), _gray(x), x)
    if settings.blur:
        blur = _blur_weights(p.radius, size)
        x = _separable(x, blur, blur)
    if settings.solarize:
        inverted = _each(p.solarized) & (x.round() >= SOLARIZE_FROM)
        x = torch.where(inverted, 255 - x, x)
    if settings.equalize:
        x = torch.where(_each(p.equalized), _equalized(x), x)
    return x


def _each(values: Tensor) -> Tensor:
    """(N,) to (N, 1, 1, 1)."""
    return values.view(-1, 1, 1, 1)


# ---- linear in the pixels ------------------------------------------------------------------------


def resize_weights(
    start: Tensor,
    length: Tensor,
    source: int,
    size: int,
    interpolation: str,
    flipped: Tensor | None = None,
) -> Tensor:
    """What each source pixel gives to each pixel of a crop's resize, along one axis, as in Pillow.

    Args:
        start, length: (N,) of the crops, in pixels.
        source: pixels of the images along this axis.
        size: pixels of the result.
        interpolation: "bicubic" (Keys, a = -0.5) or "bilinear"; a crop larger than the result is
            antialiased.
        flipped: (N,) bool, crops to be mirrored along this axis.

    Returns:
        (N, size, source), each row summing to 1; nothing outside the crop counts.
    """
    centers = torch.arange(size, device=start.device) + 0.5
    if flipped is not None:
        centers = torch.where(flipped.unsqueeze(1), size - centers, centers)
    scale = (length / size).view(-1, 1, 1)
    places = torch.arange(source, device=start.device) + 0.5 - start.unsqueeze(1)
    inside = (places > 0) & (places < length.unsqueeze(1))
    places = torch.where(inside, places, -torch.inf)  # beyond any filter's reach
    centers = centers.expand(len(start), size).unsqueeze(2)
    distance = (places.unsqueeze(1) - centers * scale).div_(scale.clamp(min=1)).abs_()
    if interpolation == "bilinear":
        weights = (1 - distance).clamp_(min=0)
    else:
        near = ((1.5 * distance - 2.5) * distance).mul_(distance).add_(1)
        far = ((2.5 - 0.5 * distance) * distance - 4).mul_(distance).add_(2)
        weights = torch.where(distance < 1, near, far)
        weights = torch.where(distance < 2, weights, 0.0)
    return weights.div_(weights.sum(dim=2, keepdim=True))


def _blur_weights(radius: Tensor, size: int) -> Tensor:
    """A box of 2 radius + 1 pixels, parts of pixels at its ends, three times; (N, size, size)."""
    offsets = torch.arange(-BLUR_REACH, BLUR_REACH + 1, device=radius.device)
    box = (radius.unsqueeze(1) + 1 - offsets.abs()).clamp(0, 1)
    box = box / (2 * radius + 1).unsqueeze(1)
    # The border's pixels go on beyond it.
    places = torch.arange(size, device=radius.device)
    sources = (places.unsqueeze(0) + offsets.unsqueeze(1)).clamp(0, size - 1)
    taps = (sources.unsqueeze(2) == places).to(box)  # (offset, to, from)
    once = (box @ taps.flatten(1)).view(-1, size, size)
    return once @ once @ once


def _separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Columns first, each pass rounded and cut to 0 to 255 as Pillow does."""
    count, height, _, width = x.shape
    across = torch.bmm(x.view(count, height * 3, width), columns.transpose(1, 2))
    across = across.round_().clamp_(0, 255).view(count, height, -1)
    down = torch.bmm(rows, across).round_().clamp_(0, 255)
    return down.view(count, rows.shape[1], 3, columns.shape[1])


# ---- colours -------------------------------------------------------------------------------------


def _gray(x: Tensor) -> Tensor:
    red, green, blue = x.unbind(2)
    return (red * _LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2]).unsqueeze(2)


def _jitter(x: Tensor, settings: ViewSettings, p: Parameters) -> None:
    """Brightness, contrast, saturation and hue in each image's own order, in place."""
    places = p.factor.shape[1]
    before = places // 2 if settings.amounts[HUE] else places
    for place in range(before):
        _blend(x, p.factor[:, place], p.to_gray[:, place], p.to_mean[:, place])
    if settings.amounts[HUE]:
        shift_hue(x, p.hue)
    for place in range(before, places):
        _blend(x, p.factor[:, place], p.to_gray[:, place], p.to_mean[:, place])


def _blend(x: Tensor, factor: Tensor, to_gray: Tensor, to_mean: Tensor) -> None:
    """factor * x plus the rest of black (brightness), of the gray image or of its mean."""
    gray = _gray(x)
    mean = gray.mean(dim=(1, 2, 3), keepdim=True).round_()
    base = torch.addcmul(mean * _each(to_mean), gray, _each(to_gray))
    x.mul_(_each(factor)).add_(base).clamp_(0, 255)


def shift_hue(x: Tensor, shift: Tensor) -> None:
    """Turns the hue in HSV, in place.

    With V the largest channel and C the chroma, a channel is V - C clamp(min(k, 4 - k), 0, 1),
    k = (n + h) mod 6, n = 5, 3, 1 for red, green and blue (the closed form of Smith, 1978).

    Args:
        x: (N, H, 3, W), at least 0.
        shift: (N,) in sixths of the circle.
    """
    red, green, blue = x.unbind(2)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    # Without chroma there is no hue and all three channels are V, whatever stands here.
    per_chroma = 1 / chroma.clamp(min=1e-6)
    hue = torch.where(
        value == red,
        (green - blue) * per_chroma,
        torch.where(value == green, (blue - red) * per_chroma + 2, (red - green) * per_chroma + 4),
    )
    hue += shift.view(-1, 1, 1)
    hue -= 6 * torch.floor(hue / 6)
    # With d the distance of hue + n to the nearest of 2 and 8, min(k, 4 - k) is 2 - d.
    offsets = 2 * torch.arange(3, device=x.device).view(3, 1)
    part = (hue.unsqueeze(2) - offsets).abs_().sub_(3).abs_().neg_().add_(2).clamp_(0, 1)
    torch.addcmul(value.unsqueeze(2), part, chroma.unsqueeze(2), value=-1, out=x)


def _equalized(x: Tensor) -> Tensor:
    """A flat histogram in each channel, as Pillow's ImageOps.equalize."""
    count, height, _, width = x.shape
    levels = x.round().long().transpose(1, 2).reshape(count * 3, height * width)
    histogram = torch.zeros(count * 3, _BINS, device=x.device)
    histogram.scatter_add_(1, levels, torch.ones_like(levels, dtype=histogram.dtype))
    last = levels.amax(dim=1, keepdim=True)
    step = ((height * width - histogram.gather(1, last)) / (_BINS - 1)).floor()
    table = histogram.cumsum(dim=1) - histogram + (step / 2).floor()
    table = (table / step.clamp(min=1)).floor().clamp(0, _BINS - 1)
    table = torch.where(step > 0, table, torch.arange(_BINS, device=x.device))
    return table.gather(1, levels).view(count, 3, height, width).transpose(1, 2)
