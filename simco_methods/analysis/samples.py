"""What is measured on: anchors with their positives, and a dictionary of other images' keys."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from simco_methods.analysis.encoder import Checkpoint, Network
from simco_methods.analysis.settings import Settings
from simco_methods.analysis.sweep import Sweep, check_sizes, default_sizes, sweep_dictionary
from simco_methods.data import load_images
from simco_methods.data.loaders import PretrainSet
from simco_methods.data.resident import DoesNotFit, ResidentImages
from simco_methods.data.transforms import per_view
from simco_methods.data.views import ViewMaker
from simco_methods.data.workers import usable_workers
from simco_methods.machine import find_device
from simco_methods.progress import Progress
from simco_methods.seeds import derived_seed

Items = Sequence[tuple[int, int]]  # (pass, image)
QUERY, KEY = 0, 1  # the views
_KEYS = 65536  # that are taken unless sizes are asked for


@dataclass
class Pairs:
    """Anchors and their positives.

    Attributes:
        query, key: (N, D) L2-normalised embeddings of view 1 (online) and view 2 (momentum).
        query_features, key_features: (N, F), the backbones' outputs.
        items: (pass, image) of each.
    """

    query: Tensor
    key: Tensor
    query_features: Tensor
    key_features: Tensor
    items: Items


class Samples:
    """Views, embeddings and dictionary of a checkpoint, each made when it is first asked for.

    Everything is a function of the seed: views are drawn by (seed, pass, image, view), and the
    networks are in evaluation mode, so that neither batches nor workers matter.

    Raises:
        ValueError: more anchors than images, or sizes that the keys at hand do not fill.
    """

    def __init__(self, checkpoint: Checkpoint, settings: Settings):
        self.checkpoint, self.settings = checkpoint, settings
        cfg = checkpoint.cfg
        self.device = _device(settings.device)
        self.images = load_images(cfg.data, settings.split)
        if len(per_view(cfg.augmentations)) < 2:
            raise ValueError("augmentations give 1 view; two are needed")
        training = OmegaConf.select(cfg, "optimizer.batch_size", default=256)
        half = len(self.images) // 2
        self.group: int = settings.anchors or max(2, min(training, half))
        self.batches: int = settings.batches or max(1, min(8, half // self.group))
        self.count = self.group * self.batches
        if self.count > len(self.images):
            raise ValueError(
                f"{self.batches} batches of {self.group} anchors are {self.count} images, the "
                f"data has {len(self.images)}: set batches or anchors lower"
            )
        order = torch.Generator().manual_seed(derived_seed(settings.seed))
        self._order = torch.randperm(len(self.images), generator=order).tolist()
        self.temperatures = settings.temperatures
        self.tau = scalar_temperature(cfg)

    # ---- what is measured on ---------------------------------------------------------------------

    @functools.cached_property
    def pairs(self) -> Pairs:
        """The anchors, ``batches`` times ``anchors`` of them, each image once."""
        items = [(0, image) for image in self._order[: self.count]]
        query_features, query = self.embed(self.checkpoint.online, items, QUERY)
        key_features, key = self.embed(self.checkpoint.momentum, items, KEY)
        if not (torch.isfinite(query).all() and torch.isfinite(key).all()):
            raise ValueError(f"the embeddings of {self.checkpoint.path} are not finite")
        return Pairs(query, key, query_features, key_features, items)

    @functools.cached_property
    def dictionary_items(self) -> Items:
        """(pass, image) of the keys that are made by the encoder; none is an anchor's image."""
        others = self._order[self.count :]
        return [(1 + number, image) for number in range(self.settings.passes) for image in others]

    @functools.cached_property
    def keys_at_hand(self) -> int:
        """How many keys the dictionary can have."""
        if self.settings.keys == "encoder":
            return len(self.dictionary_items)
        return len(self.queued_keys)

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Dictionary sizes to measure at.

        Raises:
            ValueError: no keys at all, or a size that they do not fill.
        """
        there, settings = self.keys_at_hand, self.settings
        if there < 2:
            where = f"of the queue in {self.checkpoint.path}"
            if settings.keys == "encoder":
                where = (
                    f"beside the {self.count} anchors of {len(self.images)} images; set batches or "
                    "anchors lower"
                )
            raise ValueError(f"the dictionary is empty: {there} keys {where}")
        if settings.sizes is None:
            return default_sizes(min(there, _KEYS))
        try:
            check_sizes(settings.sizes, there)
        except ValueError as error:
            if settings.keys == "queue":
                raise ValueError(f"{error} in the checkpoint's queue") from error
            raise ValueError(
                f"{error}: {there} = {len(self.images) - self.count} images that are no anchors x "
                f"passes={settings.passes}; set passes higher, or batches or anchors lower"
            ) from error
        return sorted(set(settings.sizes))

    @functools.cached_property
    def dictionary(self) -> Tensor:
        """(K, D) keys, K the largest size; of a queue the newest first."""
        if self.settings.keys == "queue":
            return self.queued_keys[: self.sizes[-1]].to(self.device)
        items = self.dictionary_items[: self.sizes[-1]]
        return self.embed(self.checkpoint.momentum, items, KEY, features=False)[1]

    @functools.cached_property
    def sweep(self) -> Sweep:
        """The anchors over the dictionary, at the temperatures and the one that weighs anchors."""
        temperatures = sorted({*self.temperatures, self.tau})
        pairs = self.pairs
        return sweep_dictionary(pairs.query, pairs.key, self.dictionary, self.sizes, temperatures)

    @functools.cached_property
    def queued_keys(self) -> Tensor:
        """The keys of the checkpoint's own queue, newest first, without slots never written.

        Raises:
            ValueError: a checkpoint without a queue of the pack's.
        """
        if not self.checkpoint.queues:
            raise ValueError(
                f"{self.checkpoint.path} has no key queue of the pack's methods (mocov2, "
                "decoupled_moco): keys=encoder makes the dictionary from images"
            )
        queue = self.checkpoint.queues[0]
        newest = queue.slots(len(queue), "recent")
        return queue.keys[newest[queue.filled[newest]]]

    # ---- how it is made --------------------------------------------------------------------------

    @torch.no_grad()
    def embed(
        self, network: Network, items: Items, view: int, features: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Features (N, F), or (0, F) without, and embeddings (N, D) of one view of each item."""
        network.to(self.device)
        kept, embeddings = [], []
        with Progress("extracting features", len(items)) as progress:
            for images in self.views(items, view, self.settings.seed):
                outputs = network(images.to(self.device))
                kept.append(outputs[0].float() if features else outputs[0][:0])
                embeddings.append(outputs[1])
                progress.update(len(images))
        return torch.cat(kept), torch.cat(embeddings)

    def views(
        self, items: Items, view: int, seed: int, batch_size: int | None = None
    ) -> Iterator[Tensor]:
        """One view of each item, (B, 3, H, W) at a time, in order, by the loader of a run here."""
        size = batch_size or self.settings.batch_size
        if self._resident is None:
            workers = min(usable_workers(self.settings.num_workers), len(items) // 64)
            dataset = self._set(view, seed)
            options = {"batch_size": size, "sampler": list(items), "num_workers": workers}
            for _, (images,), _ in DataLoader(dataset, **options):
                yield images
            return
        cfg = self.checkpoint.cfg
        entry = per_view(cfg.augmentations)[view]
        maker = ViewMaker(entry, cfg.data.dataset, self.device)
        for first in range(0, len(items), size):
            epochs, images = np.array(items[first : first + size]).T
            draws = epochs, images, np.full(len(images), view)
            parameters = maker.draw(self._resident.sizes[images], seed, *draws)
            rows = torch.from_numpy(images).to(self.device)
            yield maker.make(self._resident.pixels, rows, parameters)

    @functools.cached_property
    def _resident(self) -> ResidentImages | None:
        if OmegaConf.select(self.checkpoint.cfg, "data.loader", default="workers") == "workers":
            return None
        try:
            return ResidentImages(self.images, self.device)
        except DoesNotFit:
            return None

    def picture(self, item: tuple[int, int], view: int) -> Image.Image:
        """What a person sees of one view of an item."""
        dataset = self._set(view, self.settings.seed)
        return dataset.preprocessings[view].inverse(dataset[item][1][0])

    def _set(self, view: int, seed: int) -> PretrainSet:
        cfg = self.checkpoint.cfg
        return PretrainSet(self.images, cfg.data.dataset, cfg.augmentations, seed, views=(view,))


def scalar_temperature(cfg: DictConfig) -> float:
    """The temperature that weighs a method's anchors; 0.1, the paper's tau, where it has none."""
    for name in ("scalar.tau", "tau_beta", "tau", "temperature"):
        value = OmegaConf.select(cfg, f"method_kwargs.{name}")
        if isinstance(value, int | float):
            return float(value)
    return 0.1


def _device(name: str) -> torch.device:
    device = find_device(name)
    if device.type == "mps":
        raise ValueError("device=mps: it has no float64, which the analyses need; use cpu")
    return device
