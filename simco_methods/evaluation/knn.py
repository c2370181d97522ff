"""kNN accuracy of an encoder for all k, temperatures and distances at once."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from omegaconf import OmegaConf
from torch import Tensor

from simco_methods.encoder import Encoder
from simco_methods.evaluation.accuracy import chance_note
from simco_methods.evaluation.bank import BankAndQueries, bank_and_queries
from simco_methods.evaluation.grid import cells_of, measure
from simco_methods.evaluation.knn_settings import KNNSettings
from simco_methods.evaluation.loading import bank_and_query_features, check_finite, evaluation_data
from simco_methods.files import rounded, together, write_csv, write_json
from simco_methods.machine import hardware, versions
from simco_methods.measures import name_of


def knn(source: str, settings: KNNSettings) -> Path:
    """Measures an encoder and writes what is found; returns the folder of the results.

    Files:
        results.csv: a line a cell, accuracies in percent.
        knn.png: accuracy against k.
        per_class.csv, confusion.csv, confusion.png: of the standard cell.
        summary.json: all of it, with settings, data and machine.

    Args:
        source: see :func:`~simco_methods.encoder.load_encoder`.
        settings: of the command.

    Raises:
        ValueError, OSError: an encoder, images or settings that do not fit, by name.
    """
    began = time.perf_counter()
    encoder = settings.load(source)
    images = bank_and_queries(settings, encoder, settings.bank, settings.queries)
    ks = settings.neighbours(images)
    folder = settings.out_folder(source, "knn")
    facts = {
        "encoder": source,
        "network": f"{encoder.card.backbone}, {encoder.features} features",
        "data": images.name,
        "bank": f"{settings.bank}, {len(images.bank):,} images",
        "queries": f"{settings.queries}, {len(images.queries):,} images",
        "classes": len(images.classes),
    }
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    print("".join(f"note: {note}\n" for note in images.notes), end="", flush=True)
    grid = measure(
        *_features(encoder, images, settings),
        cells_of(settings.distance, settings.temperature, ks),
        images.classes,
        images.own,
        settings.memory_mib,
    )
    summary = {
        **facts,
        "notes": list(images.notes),
        "standard": rounded({**dataclasses.asdict(grid.standard), **grid.scores.summary()}),
        "results": rounded(grid.rows()),
        "settings": {
            **dataclasses.asdict(settings),
            "config": OmegaConf.to_container(settings.config),
        },
        "seconds": round(time.perf_counter() - began, 1),
        "machine": hardware(encoder.device, 1),
        "versions": versions(),
    }
    with together(folder) as part:
        write_csv(part / "results.csv", grid.rows())
        grid.draw(part / "knn.png", f"kNN on {images.name}")
        grid.scores.write(part, f"kNN, k={grid.standard.k}, {grid.standard.weighting}")
        write_json(part / "summary.json", summary)
    print(grid.table(), end="")
    scores = grid.scores
    for note in chance_note(
        name_of("knn_acc1"), scores.acc1, len(images.classes), scores.confusion
    ):
        print(f"note: {note}", flush=True)
    print(f"all of it: {folder}", flush=True)
    return folder


def _features(
    encoder: Encoder, images: BankAndQueries, settings: KNNSettings
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    data = evaluation_data(
        encoder,
        images.bank,
        images.queries,
        batch_size=settings.batch_size,
        num_workers=settings.num_workers,
    )
    queries = None if images.queries is images.bank else data.val_dataloader()
    loaders = data.bank_dataloader(), queries
    [found] = bank_and_query_features([encoder], *loaders, encoder.device)
    check_finite(*(features for features, _ in found))
    return found
