"""An encoder: images in, features out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from simco_methods.data.decode import read_rgb
from simco_methods.encoder.card import Card


class Encoder(nn.Module):
    """A backbone without its head, and the preprocessing of its images.

    As a module it maps normalised images to features and can be trained on; :meth:`transform` maps
    images as they are, and makes it a step of scikit-learn's pipelines, which leave it as it is.

    Args:
        backbone: (N, 3, S, S) to (N, F).
        card: what is known of it.
    """

    def __init__(self, backbone: nn.Module, card: Card):
        super().__init__()
        self.backbone, self.card = backbone, card

    @property
    def features(self) -> int:
        """F, how many numbers an image becomes."""
        return self.card.features

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return next(self.backbone.parameters()).device

    def digest(self) -> str:
        """16 hex digits of what makes features of a normalised image: the network, its weights."""
        card = self.card
        network = card.backbone, sorted(card.kwargs.items()), card.small_stem
        found = f"{network} {weights_digest(self.backbone)}"
        return hashlib.sha256(found.encode()).hexdigest()[:16]

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, F) of images (N, 3, S, S), as :meth:`preprocess` gives them.

        Raises:
            ValueError: a tensor of another shape.
        """
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(
                f"images must have the shape (N, 3, S, S), got {tuple(images.shape)}; "
                "Encoder.transform takes images as they are"
            )
        return self.backbone(images)

    def preprocess(self, image: Image.Image | np.ndarray | str | os.PathLike) -> Tensor:
        """An image to what the network sees of it, (3, S, S) float32.

        Args:
            image: a Pillow image, a uint8 array (H, W, 3) or (H, W), or a file's path.

        Raises:
            UnreadableImage: a file that cannot be read as an image, by its path.
            ValueError: an array of another shape or type.
        """
        return self.card.preprocessing(as_picture(image))

    @torch.no_grad()
    def transform(self, images: Sequence[Any] | np.ndarray, batch_size: int = 256) -> np.ndarray:
        """Features (N, F) float32 of N images, in evaluation mode.

        Args:
            images: an array (N, H, W, 3) or (N, H, W) of uint8, or N images of any size as
                :meth:`preprocess` takes them.
            batch_size: images at a time; changes nothing but memory.

        Raises:
            UnreadableImage, ValueError: see :meth:`preprocess`; one image alone.
        """
        alone = isinstance(images, str | os.PathLike | Image.Image)
        shape = np.shape(images) if isinstance(images, np.ndarray | Tensor) else ()
        if alone or (len(shape) == 3 and shape[2] == 3):
            raise ValueError("images must be a sequence of images, got one; put it into a list")
        was_training, dtype = self.training, next(self.backbone.parameters()).dtype
        self.eval()
        try:
            found = [
                self(batch.to(self.device, dtype)).float().cpu()
                for batch in self._batches(images, batch_size)
            ]
        finally:
            self.train(was_training)
        return torch.cat(found).numpy() if found else np.empty((0, self.features), np.float32)

    def fit(self, images: Any = None, labels: Any = None) -> Encoder:
        """Changes nothing: for scikit-learn's pipelines, in which every step is fitted.

        Args:
            images, labels: not looked at.
        """
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(None, TargetTags(required=False), TransformerTags(), requires_fit=False)

    def __sklearn_clone__(self) -> Encoder:
        # Cross-validation copies what it fits; here nothing is fitted.
        return self

    def _batches(self, images: Sequence[Any], size: int) -> Iterator[Tensor]:
        for first in range(0, len(images), size):
            yield torch.stack([self.preprocess(image) for image in images[first : first + size]])


def weights_digest(module: nn.Module) -> str:
    """64 hex digits (SHA-256) of a module's weights and buffers, wherever they lie."""
    found = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def as_picture(image: Image.Image | np.ndarray | str | os.PathLike) -> Image.Image:
    """An image as an RGB picture; arguments and errors as of :meth:`Encoder.preprocess`."""
    if isinstance(image, Image.Image):
        return image.convert("RGB")
    if isinstance(image, str | os.PathLike):
        return read_rgb(os.fspath(image))
    array = np.asarray(image)
    if array.dtype != np.uint8:
        raise ValueError(f"an image must be an array of uint8 from 0 to 255, got {array.dtype}")
    if not array.size or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)):
        raise ValueError(f"an image must have the shape (H, W, 3) or (H, W), got {array.shape}")
    return Image.fromarray(array).convert("RGB")
