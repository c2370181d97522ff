"""Data sets, augmentations and loaders."""

from simco_methods.data.datasets import DATASETS, has_validation, load_images, read_images
from simco_methods.data.images import ImageSet, folder_images
from simco_methods.data.module import LOADERS, PretrainData

__all__ = [
    "DATASETS",
    "LOADERS",
    "ImageSet",
    "PretrainData",
    "folder_images",
    "has_validation",
    "load_images",
    "read_images",
]
