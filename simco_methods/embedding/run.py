"""``simco-embed``: what it does, in order."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from simco_methods.data.decode import UnreadableImage, printable, read_rgb
from simco_methods.data.transforms import Preprocessing
from simco_methods.data.workers import (
    end_workers,
    leave_signals_to_the_run,
    usable_workers,
    with_workers,
)
from simco_methods.embedding.listing import Listing, check_apart
from simco_methods.embedding.lookup import look_up, read_queries
from simco_methods.embedding.parquet import load_pyarrow
from simco_methods.embedding.settings import EmbedSettings
from simco_methods.embedding.store import RECORD, GrowingStore, publish
from simco_methods.embedding.stored import StoredFeatures
from simco_methods.encoder import Encoder
from simco_methods.files import lock, user_path
from simco_methods.machine import hardware, versions
from simco_methods.progress import Progress

_PART = ".part"
_SECONDS = 5.0  # between what a kill does not lose
_WHAT = {
    "images": "of other images, or of these before they changed",
    "encoder": "of another encoder",
    "preprocessing": "of another preprocessing of the images",
    "dtype": "of another dtype",
    "format": "in another format",
}


def embed(source: str | Path, folder: str | Path, settings: EmbedSettings) -> Path:
    """Writes the features of all images of a folder; returns where they are.

    The same call goes on where one was killed, from what was last on the disk, and leaves finished
    features alone.

    Args:
        source: as of :func:`~simco_methods.encoder.load_encoder`.
        folder: with images, at any depth.
        settings: how.

    Raises:
        ValueError, OSError, ImportError: settings, an encoder, images or a place for the results
            that do not fit, by name; features of something else that are there already.
    """
    folder = user_path(folder)
    out = settings.out_folder(source, "embed")
    if settings.out is None:
        out /= folder.resolve().name
    check_apart(out, folder)
    if settings.format == "parquet":
        load_pyarrow()
    queries = read_queries(settings.query or [], folder)
    encoder = settings.load(str(source))
    listing = Listing(folder)
    for query in queries:
        query.check(settings.neighbours, listing)
    identity = {
        "images": listing.digest,
        "encoder": encoder.digest(),
        "preprocessing": _plain(asdict(encoder.card.preprocessing)),
        "dtype": settings.dtype,
        "format": settings.format,
    }
    held = lock(out / _PART / "lock")
    if held is None:
        raise ValueError(f"another process writes features to {printable(out)}")
    try:
        publish(out / _PART, out)
        if (out / RECORD).is_file():
            shutil.rmtree(out / _PART, ignore_errors=True)  # gone, where it had to be published
            _check_same(out, StoredFeatures(out).record, identity)
            print(f"finished before: {printable(out)}", flush=True)
        else:
            facts = {"source": str(source), "folder": str(folder), "count": listing.count}
            _embed_all(encoder, listing, out, identity, facts, settings)
    finally:
        os.close(held)
    if queries:
        look_up(encoder, queries, StoredFeatures(out), folder, out, settings.neighbours)
    return out


def _plain(node: dict[str, Any]) -> dict[str, Any]:
    # As JSON gives it back.
    return {key: list(v) if isinstance(v, tuple) else v for key, v in node.items()}


def _check_same(out: Path, record: dict[str, Any], identity: dict[str, Any]) -> None:
    there = record.get("identity", {})
    differ = [what for key, what in _WHAT.items() if there.get(key) != identity[key]]
    gone = [name for name in record.get("files", []) if not (out / name).is_file()]
    differ += [f"without {name}" for name in gone]
    if differ:
        raise ValueError(
            f"{printable(out)} holds features {', '.join(differ)}: set out=FOLDER to another, or "
            "remove it"
        )


def _embed_all(
    encoder: Encoder,
    listing: Listing,
    out: Path,
    identity: dict[str, Any],
    facts: dict[str, Any],
    settings: EmbedSettings,
) -> None:
    part = out / _PART
    print("".join(f"note: {note}\n" for note in listing.notes), end="", flush=True)
    store = GrowingStore(part, identity, encoder.features, settings.dtype)
    if store.began_anew:
        print(
            f"what was left of an earlier start in {printable(out)} is of other images, another "
            "encoder or other settings: begun anew",
            flush=True,
        )
    elif store.seen:
        print(f"goes on after {store.seen:,} of {listing.count:,} images", flush=True)
    began, before = time.monotonic(), store.seen
    try:
        _fill(store, encoder, listing, settings)
        if not store.kept:
            raise ValueError(f"none of the {listing.count:,} images can be read")
    except BaseException as error:
        if store.kept:
            store.flush()
        store.close()
        if not store.kept:
            shutil.rmtree(part)
            with suppress(OSError):  # not empty
                out.rmdir()
        elif isinstance(error, KeyboardInterrupt):
            print(
                f"stopped after {store.seen:,} of {listing.count:,} images; the same command "
                "goes on",
                flush=True,
            )
        raise
    finally:
        end_workers()
    record = {
        **facts,
        "embedded": store.kept,
        "skipped": store.skipped,
        "features": encoder.features,
        "dtype": settings.dtype,
        "format": settings.format,
        "encoder": encoder.card.to_json(),
        "identity": identity,
        "seconds_of_last_start": round(time.monotonic() - began, 1),
        "images_of_last_start": store.seen - before,
        "hardware": hardware(encoder.device, 1),
        "versions": versions(),
    }
    store.finish(settings.format, record)
    publish(part, out)
    said = f"{store.kept:,} x {encoder.features} features: {printable(out)}"
    if store.skipped:
        said += f" ({store.skipped:,} images cannot be read: skipped.csv)"
    print(said, flush=True)


@torch.no_grad()
def _fill(store: GrowingStore, encoder: Encoder, listing: Listing, settings: EmbedSettings) -> None:
    seen = encoder.card.preprocessing
    loader = DataLoader(
        _Files(listing.folder, seen, settings.on_error == "skip"),
        batch_sampler=_batches(listing, settings.batch_size, store.seen),
        num_workers=usable_workers(settings.num_workers),
        persistent_workers=settings.num_workers > 0,  # else nobody could end them after an error
        collate_fn=_collate,
        worker_init_fn=leave_signals_to_the_run,
    )
    progress = Progress("extracting features", listing.count, done=store.seen)
    flushed = time.monotonic()
    with progress:
        for paths, pixels, skipped in with_workers(loader):
            features = np.empty((0, encoder.features), store.dtype)
            if paths:
                images = seen.batch(pixels.to(encoder.device))
                features = encoder(images).float().cpu().numpy()
                features = _as(features, store.dtype, paths)
            store.add(paths, features, skipped)
            progress.update(len(paths) + len(skipped))
            if time.monotonic() - flushed >= _SECONDS:
                store.flush()
                flushed = time.monotonic()
    store.flush()


def _as(features: np.ndarray, dtype: np.dtype, paths: list[str]) -> np.ndarray:
    with np.errstate(over="ignore"):
        found = features.astype(dtype)
    broken = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(broken):
        raise ValueError(
            f"the features of {printable(paths[broken[0]])} are not finite in {dtype}"
            + ("; take dtype=float32" if np.isfinite(features[broken[0]]).all() else "")
        )
    return found


def _batches(listing: Listing, size: int, start: int) -> Iterator[list[str]]:
    """The paths from the ``start``-th on, in the batches of a walk from the first on."""
    batch: list[str] = []
    for number, path in enumerate(listing):
        if number >= start:
            batch.append(path)
        if batch and (number + 1) % size == 0:
            yield batch
            batch = []
    if batch:
        yield batch


class _Files(Dataset):
    """Path, and pixels (3, S, S) or the reason why there are none, asked for by the path."""

    def __init__(self, folder: Path, preprocessing: Preprocessing, skip: bool):
        self.folder, self.preprocessing, self.skip = folder, preprocessing, skip

    def __getitem__(self, path: str) -> tuple[str, Tensor | str]:
        try:
            picture = read_rgb(os.path.join(self.folder, path))
        except UnreadableImage as error:
            if not self.skip:
                raise
            return path, error.why
        view = np.array(self.preprocessing.view(picture))
        return path, torch.from_numpy(view).permute(2, 0, 1)


def _collate(
    items: list[tuple[str, Tensor | str]],
) -> tuple[list[str], Tensor | None, list[tuple[str, str]]]:
    read = [(path, pixels) for path, pixels in items if isinstance(pixels, Tensor)]
    skipped = [item for item in items if isinstance(item[1], str)]
    paths = [path for path, _ in read]
    return paths, torch.stack([pixels for _, pixels in read]) if read else None, skipped
