"""One table of an encoder: kNN and linear accuracy on every data set that is found."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from simco_methods.data.workers import end_workers
from simco_methods.encoder import Encoder
from simco_methods.encoder.loading import build
from simco_methods.evaluation.accuracy import chance_note
from simco_methods.evaluation.grid import STANDARD_K
from simco_methods.evaluation.linear import probe
from simco_methods.evaluation.linear_features import PlainFeatures
from simco_methods.evaluation.linear_folder import identity
from simco_methods.evaluation.loading import bank_and_query_features, check_finite, evaluation_data
from simco_methods.evaluation.local import LocalDataset
from simco_methods.evaluation.sides import Sides
from simco_methods.evaluation.transfer_settings import TransferSettings
from simco_methods.evaluation.transfer_table import SHOWN, ResultsTable
from simco_methods.files import rounded
from simco_methods.host.knn import knn_accuracy
from simco_methods.measures import accuracies, in_percent, name_of, no_top5
from simco_methods.options import STANDARD_TEMPERATURE

_TEST_SHARE = 0.2  # of class folders without a split, where nothing is said


def transfer(source: str, settings: TransferSettings) -> Path:
    """Evaluates an encoder on all data sets; returns the folder of the results.

    Files, written anew after each data set:
        results.json: all that is known of each. Data sets that are in it are not evaluated again,
            unless their images have changed.
        table.md, table.csv: a line a data set.

    Args:
        source: of the encoder, see :func:`~simco_methods.encoder.load_encoder`.
        settings: of the command.

    Raises:
        ValueError, OSError: an encoder or settings that do not fit, or a folder of other ones; or,
            at the end, data sets that could not be evaluated, with their errors.
    """
    settings.check()
    encoder = settings.load(source)
    if settings.test_share is None:
        trained = encoder.card.settings.get("data") or {}
        settings = replace(settings, test_share=trained.get("test_share") or _TEST_SHARE)
    datasets, others = settings.found()
    folder = settings.out_folder(source, "transfer")
    table = ResultsTable(folder, source, encoder, _identity(encoder, settings))
    print(f"encoder: {source} ({encoder.card.backbone}, {encoder.features} features)")
    print(f"data sets: {', '.join(datasets)}")
    if settings.data is not None and list(datasets) == ["digits"] and settings.datasets is None:
        print(f"note: no data set is found in {settings.data}")
    if others:
        print(f"note: no data sets with class folders: {', '.join(others)}")
    failed = {}
    with table:
        for name, dataset in datasets.items():
            try:
                table.add(name, _row(encoder, dataset, settings, table.rows.get(name)))
            except Exception as error:  # whatever it is, the other data sets are not lost for it
                said = str(error).strip() or type(error).__name__
                failed[name] = said if isinstance(error, ValueError | OSError) else repr(error)
                table.add(name, {"error": failed[name]})
                print(f"{name}: failed: {failed[name]}", flush=True)
            finally:
                end_workers()
    print(table.markdown(), end="")
    print(f"all of it: {table.path}", flush=True)
    if failed:
        said = "\n".join(f"{name}: {error}" for name, error in failed.items())
        raise ValueError(f"{len(failed)} of {len(datasets)} data set(s) failed\n{said}")
    return table.path


def _row(
    encoder: Encoder,
    dataset: LocalDataset,
    settings: TransferSettings,
    before: dict[str, Any] | None,
) -> dict[str, Any]:
    """What is found on a data set; ``before``, if that is the same evaluation."""
    began = time.perf_counter()
    sides = dataset.sides(settings.test_share, settings.fraction, settings.on_error)
    digests = [sides.train.digest(), sides.test.digest()]
    if before is not None and before.get("digests") == digests:
        print(f"{dataset.name}: finished before", flush=True)
        return before
    images = {"train": len(sides.train), "test": len(sides.test), "classes": len(sides.classes)}
    of_images = list(dict.fromkeys([*sides.train.notes, *sides.test.notes]))  # long, for a table
    print(
        f"{dataset.name}: {images['train']:,} images, {images['test']:,} to test on, "
        f"{images['classes']} classes",
        *(f"  note: {note}" for note in of_images),
        sep="\n",
        flush=True,
    )
    found, features = _knn(encoder, sides, settings)
    linear = probe(encoder, sides, settings, known=features)
    found |= {
        **accuracies("linear_", linear.scores.acc1, linear.scores.acc5),
        "linear_lr": linear.chosen["lr"],
        "seconds": round(time.perf_counter() - began),
    }
    print(
        f"  {', '.join(in_percent(found, SHOWN))}, {found['seconds']} s",
        *(
            f"  note: {note}"
            for note in (
                *chance_note(name_of("knn_acc1"), found["knn_acc1"], images["classes"]),
                *chance_note(
                    name_of("linear_acc1"),
                    linear.scores.acc1,
                    images["classes"],
                    linear.scores.confusion,
                ),
            )
        ),
        sep="\n",
        flush=True,
    )
    notes = [note for note in sides.notes if note not in of_images]
    notes += no_top5(len(sides.classes))
    return {
        **images,
        **rounded(found),
        "notes": notes,
        "image_notes": of_images,
        "digests": digests,
    }


def _identity(encoder: Encoder, settings: TransferSettings) -> dict[str, Any]:
    """What all rows of a table have in common, as plain values."""
    found = identity(encoder, settings)
    rows_own = ("data", "datasets", "on_error")  # what a row's images tell
    return {key: value for key, value in found.items() if key not in rows_own}


def _knn(
    encoder: Encoder, sides: Sides, settings: TransferSettings
) -> tuple[dict[str, float], PlainFeatures]:
    """Accuracies, and the encoder's features, of which they are."""
    data = evaluation_data(
        encoder,
        sides.train,
        sides.test,
        batch_size=settings.batch_size,
        num_workers=settings.num_workers,
    )
    loaders = data.bank_dataloader(), data.val_dataloader()
    networks = {"": encoder}
    if settings.untrained:
        with torch.random.fork_rng(devices=[]):
            # The weights that its run started from, so that both say the same.
            torch.manual_seed(encoder.card.settings.get("seed", settings.seed))
            networks["untrained_"] = build(encoder.card).eval().to(encoder.device)
    found, own = {}, None
    features = bank_and_query_features(list(networks.values()), *loaders, encoder.device)
    for name, sets in zip(networks, features, strict=True):
        check_finite(*(features for features, _ in sets))
        reached = knn_accuracy(
            *sets[0],
            *sets[1],
            k=STANDARD_K,
            temperature=STANDARD_TEMPERATURE,
            num_classes=len(sides.classes),
        )
        found |= accuracies(f"{name}knn_", *reached)
        own = own or PlainFeatures(*sets)
    return found, own
