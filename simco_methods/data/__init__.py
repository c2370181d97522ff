"""Data sets, augmentations and loaders."""

from simco_methods.data.datasets import DATASETS, has_validation, load_images, read_images
from simco_methods.data.decode import UnreadableImage
from simco_methods.data.folders import folder_images
from simco_methods.data.images import ImageSet
from simco_methods.data.module import PretrainData
from simco_methods.data.readable import readable_only

__all__ = [
    "DATASETS",
    "ImageSet",
    "PretrainData",
    "UnreadableImage",
    "folder_images",
    "has_validation",
    "load_images",
    "read_images",
    "readable_only",
]
