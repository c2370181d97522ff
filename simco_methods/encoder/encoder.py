"""An encoder: images in, features out."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import Tensor, nn

from simco_methods.data.decode import as_rgb, eight_bits, read_rgb
from simco_methods.data.folders import folder_images
from simco_methods.encoder.card import Card
from simco_methods.wording import count


class Encoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, nn.Module):
    """A backbone without its head, and the preprocessing of its images.

    As a module it maps normalised images to features and can be trained on. As a scikit-learn
    transformer it maps images as they are, or their paths, by :meth:`transform`; fitting changes
    nothing.

    Its parameters, for ``set_params`` and ``GridSearchCV``, are ``batch_size`` and ``normalize``.
    ``clone``, which scikit-learn calls for each fit, copies these and shares the backbone: training
    that or moving it to another device changes every clone. ``copy.deepcopy`` copies the weights.

    Args:
        backbone: (N, 3, S, S) to (N, F).
        card: what is known of it.
        batch_size: images that :meth:`transform` holds at a time; changes nothing but memory and
            speed.
        normalize: whether :meth:`transform` scales each row to unit length.
    """

    def __init__(
        self, backbone: nn.Module, card: Card, *, batch_size: int = 256, normalize: bool = False
    ):
        super().__init__()
        self.backbone, self.card = backbone, card
        self.batch_size, self.normalize = batch_size, normalize

    @property
    def features(self) -> int:
        """F, how many numbers an image becomes."""
        return self.card.features

    def __repr__(self, N_CHAR_MAX: int = 0) -> str:  # scikit-learn's asks for a length
        """On one line: ``Encoder(resnet18, 512 features, 32 px, simco on cifar10)``."""
        card = self.card
        trained = " on ".join(filter(None, (card.method, card.dataset)))
        facts = [card.backbone, count(card.features, "feature"), f"{card.preprocessing.size} px"]
        facts += [trained, "normalize=True" if self.normalize else ""]
        return f"Encoder({', '.join(filter(None, facts))})"

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
            image: a Pillow image, a file's path, or an array (H, W, 3) or (H, W) of uint8, or of
                uint16, of which the upper 8 bits are taken.

        Raises:
            UnreadableImage: a file that cannot be read as an image, by its path.
            ValueError: an array of another shape or type; a Pillow image of mode I or F.
        """
        return self.card.preprocessing(as_picture(image))

    @torch.no_grad()
    def transform(self, X: Any) -> np.ndarray:
        """Features of images, in evaluation mode.

        Args:
            X: N images, or an iterable of them (a list, a generator, a column of a table), of any
                size and each as :meth:`preprocess` takes it; an array (N, H, W, 3) or (N, H, W) of
                uint8 or uint16; one path or Pillow image; or a folder, of which all images are
                taken, at any depth, in the order of :func:`simco_methods.image_files`.

        Returns:
            (N, F) float32, or the table that ``set_output`` asks for.

        Raises:
            FileNotFoundError: a folder without images.
            UnreadableImage, ValueError: see :meth:`preprocess`; a table of several columns, an
                array of one image, a parameter out of its range.
        """
        size, normalize = self.batch_size, self.normalize
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"batch_size={size!r}: must be an integer from 1 on")
        if not isinstance(normalize, bool | np.bool_):
            raise ValueError(f"normalize={normalize!r}: must be True or False")
        images, dtype = _images(X), next(self.backbone.parameters()).dtype
        training = [module for module in self.modules() if module.training]
        self.eval()
        found = [torch.empty(0, self.features)]
        try:
            while batch := [self.preprocess(image) for image in islice(images, size)]:
                features = self(torch.stack(batch).to(self.device, dtype)).float()
                found.append((nn.functional.normalize(features) if normalize else features).cpu())
        finally:
            for module in training:
                module.training = True
        return torch.cat(found).numpy()

    def fit(self, X: Any = None, y: Any = None) -> Encoder:
        """Changes nothing.

        Args:
            X, y: not looked at.
        """
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; backbone and card, which make it the encoder that it is, are none.

        Args:
            deep: changes nothing.
        """
        return {"batch_size": self.batch_size, "normalize": self.normalize}

    @property
    def _n_features_out(self) -> int:
        return self.features  # of which get_feature_names_out makes encoder0, encoder1, ...

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:  # asked for by scikit-learn 1.6 and later
        tags = super().__sklearn_tags__()
        tags.requires_fit, tags.no_validation = False, True
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags

    def __sklearn_clone__(self) -> Encoder:
        # Without this, clone would build it from its parameters alone.
        copied = type(self)(self.backbone, self.card, **self.get_params())
        copied.training = self.training
        copied._sklearn_output_config = dict(vars(self).get("_sklearn_output_config", {}))
        return copied


def _images(X: Any) -> Iterator[Any]:
    """The images of what :meth:`Encoder.transform` takes, one at a time."""
    if isinstance(X, str | os.PathLike) and os.path.isdir(X):
        found = folder_images(X, labelled=False)
        for note in found.notes:
            warnings.warn(note, stacklevel=5)
        return iter(found.images)
    if isinstance(X, str | os.PathLike | Image.Image):
        return iter([X])
    shape = getattr(X, "shape", ())
    if len(shape) == 3 and shape[2] == 3:
        raise ValueError(
            f"an array of shape {tuple(shape)} is one image; put it into a list, [image]"
        )
    if hasattr(X, "columns") and shape[1] != 1:
        raise ValueError(
            "images must be one column, of their paths for instance; the table has "
            f"{', '.join(map(str, X.columns))}"
        )
    if len(shape) == 2 and shape[1] == 1:
        return iter(np.asarray(X)[:, 0])
    if not isinstance(X, Iterable):
        raise ValueError(f"images must be a path, a folder or a sequence of images, got {X!r}")
    return iter(X)


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
        try:
            return as_rgb(image)
        except ValueError as error:
            raise ValueError(f"cannot take a Pillow image: {error}") from error
    if isinstance(image, str | os.PathLike):
        return read_rgb(os.fspath(image))
    array = np.asarray(image)
    if array.dtype.kind == "u" and array.dtype.itemsize == 2:  # in any order of bytes
        array = eight_bits(array)
    if array.dtype != np.uint8:
        raise ValueError(
            "an image must be an array of uint8 from 0 to 255, or of uint16 from 0 to 65535, got "
            f"{array.dtype}"
        )
    if not array.size or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)):
        raise ValueError(f"an image must have the shape (H, W, 3) or (H, W), got {array.shape}")
    return Image.fromarray(array).convert("RGB")
