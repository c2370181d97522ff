"""Features in two dimensions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

_FEWEST = 4  # images that have a map
_PERPLEXITY, _NEIGHBOURS = 30, 15  # the methods' usual ones


def coordinates(features: np.ndarray, method: str, seed: int) -> tuple[np.ndarray, str]:
    """Places (N, 2) of N images, and how they were found, in words.

    Args:
        features: (N, F); of their lengths nothing is used.
        method: one of :data:`METHODS`.
        seed: the same features then have the same places.

    Raises:
        ValueError: fewer than four images, or images that all have the same features.
    """
    if len(features) < _FEWEST:
        raise ValueError(f"a map takes {_FEWEST} images or more, there are {len(features)}")
    length = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.maximum(length, 1e-12)
    if unit.std(axis=0).max() < 1e-6:
        raise ValueError("all images have the same features: there is no map of one place")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads and of pictures of other libraries
        places, said = METHODS[method](unit, seed)
    return np.asarray(places, dtype=np.float64), said


def _umap(unit: np.ndarray, seed: int) -> tuple[np.ndarray, str]:
    UMAP = load_umap()
    count = min(_NEIGHBOURS, len(unit) - 1)
    # One thread: several do not give the same places twice.
    reducer = UMAP(n_neighbors=count, metric="cosine", init="pca", random_state=seed, n_jobs=1)
    return reducer.fit_transform(unit), f"UMAP by cosine, {count} neighbours"


def _tsne(unit: np.ndarray, seed: int) -> tuple[np.ndarray, str]:
    from sklearn.manifold import TSNE

    perplexity = min(_PERPLEXITY, (len(unit) - 1) / 3)
    reducer = TSNE(perplexity=perplexity, init="pca", random_state=seed)
    return reducer.fit_transform(unit), f"t-SNE of unit features, perplexity {perplexity:.3g}"


def _pca(unit: np.ndarray, seed: int) -> tuple[np.ndarray, str]:
    from sklearn.decomposition import PCA

    reducer = PCA(2, random_state=seed)
    places = reducer.fit_transform(unit)
    share = reducer.explained_variance_ratio_.sum()
    return places, f"the two main directions of unit features, {share:.0%} of their variance"


METHODS: dict[str, Callable[[np.ndarray, int], tuple[np.ndarray, str]]] = {
    "umap": _umap,
    "tsne": _tsne,
    "pca": _pca,
}


def load_umap() -> Any:
    """The class of umap-learn's.

    Raises:
        ImportError: it is not installed, with what installs it.
    """
    try:
        from umap import UMAP
    except ImportError as error:
        raise ImportError(
            f"method=umap needs umap-learn ({error}): pip install 'simco-methods[umap]', or take "
            "method=tsne"
        ) from error
    return UMAP


def chosen_method(method: str) -> tuple[str, str]:
    """The method that "auto" stands for here, and why; any other one as it is."""
    if method != "auto":
        return method, ""
    try:
        load_umap()
    except ImportError:
        return "tsne", " (umap-learn is not installed)"
    return "umap", ""
