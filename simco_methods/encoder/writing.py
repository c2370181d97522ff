"""Exports an encoder: every file is written, read again and compared before any is in place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from simco_methods.config.walk import reason
from simco_methods.encoder.card import Card
from simco_methods.encoder.encoder import Encoder, weights_digest
from simco_methods.encoder.formats import FORMATS, Export, Format
from simco_methods.encoder.naming import default_naming, plain_lines, transform_lines
from simco_methods.encoder.solo_learn import CHECKPOINT
from simco_methods.files import together, write_json
from simco_methods.progress import Progress
from simco_methods.quiet import quiet


@dataclass
class Written:
    """A file, or a folder.

    Attributes:
        path: of it.
        size: in bytes.
        difference: largest one of its features to the encoder's; None if it was not compared.
        scale: the encoder's largest feature in that comparison.
        load: lines that load it.
    """

    path: Path
    size: int
    difference: float | None
    scale: float
    load: list[str]


def export_encoder(
    encoder: Encoder, folder: Path, stem: str, formats: Sequence[str], naming: str | None
) -> list[Written]:
    """Writes an encoder in some formats, and a card for them, ``<stem>.json``.

    Args:
        encoder: on the CPU, in evaluation mode.
        folder: made if need be; files of these names in it are overwritten.
        stem: of the files' names.
        formats: of ``FORMATS``.
        naming: "torchvision", "timm", or None for the library that the network is from.

    Raises:
        ImportError: a format whose package is not installed.
        ValueError: a network that a format or naming does not allow, by name; a card of other
            weights whose files would stay. Nothing has been written.
    """
    chosen = {name: FORMATS[name] for name in formats}
    for form in chosen.values():
        form.check(encoder)
    export = Export(encoder, _facts(encoder))
    if any(form.plain for form in chosen.values()):
        export.naming = naming or default_naming(encoder.card)
        export.lines = plain_lines(encoder, export.naming)
    card = folder / f"{stem}.json"
    names = {name: f"{stem}{form.ending}" if form.ending else name for name, form in chosen.items()}
    kept = _kept(card, export.facts, names.values())
    with ExitStack() as stack:
        part = stack.enter_context(together(folder))
        written, files = [], {}
        for name, form in chosen.items():
            path = part / names[name]
            if not form.ending:
                path = stack.enter_context(together(folder / names[name]))
            with Progress(f"writing {name}, and reading it again"):
                difference, scale = _written(name, form, export, path)
            load = form.load(export, names[name])
            entries = _entries(path, names[name], {"format": name, "load": load})
            files |= entries
            size = sum(entry["bytes"] for entry in entries.values())
            written.append(Written(folder / names[name], size, difference, scale, load))
            if not form.ending:
                write_json(path / f"{Path(CHECKPOINT).stem}.json", export.facts)
        facts = {
            **export.facts,
            "naming": export.naming,
            "transform": transform_lines(encoder.card),
        }
        write_json(part / card.name, {**facts, "files": {**kept, **files}})
    return written


def _written(name: str, form: Format, export: Export, path: Path) -> tuple[float | None, float]:
    """Writes a file and reads it again: the largest difference of features, and the largest."""
    encoder = export.encoder
    refused = f"{encoder.card.backbone} cannot be exported as {name}"
    try:
        with torch.no_grad(), quiet():
            form.write(export, path)
            network = form.read(export, path)
            differences, scale = [], 0.0
            for images in map(export.images, (2, 3)):  # another number than it was traced with
                expected = encoder(images)
                scale = max(scale, float(expected.abs().max()))
                if network is not None:
                    differences.append(float((network(images) - expected).abs().max()))
    except Exception as error:  # whatever torch and others raise
        raise ValueError(f"{refused}: {reason(error)}") from error
    difference = max(differences, default=None)
    if difference is not None and not difference <= form.tolerance * scale:
        raise ValueError(
            f"{refused}: its features differ from the encoder's by up to {difference:.2g} (the "
            f"largest is {scale:.2g}), more than {form.tolerance:g} of that"
        )
    return difference, scale


def _facts(encoder: Encoder) -> dict[str, Any]:
    return {**encoder.card.to_json(), "weights": weights_digest(encoder.backbone)}


def _kept(path: Path, facts: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The files of an earlier card of the same encoder that stay.

    Raises:
        ValueError: no card, or the card of another encoder whose files would stay.
    """
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8", errors="replace")
    Card.from_json(text, f"{path}, which an export would overwrite,")
    earlier = json.loads(text)
    kept = {
        name: entry
        for name, entry in (earlier.get("files") or {}).items()
        if name.split("/")[0] not in names and (path.parent / name).is_file()
    }
    same = json.loads(json.dumps(facts))
    if kept and any(earlier.get(key) != value for key, value in same.items()):
        raise ValueError(
            f"{path} is the card of another encoder, with {', '.join(kept)}; remove them, or name "
            "another folder by out=FOLDER"
        )
    return kept


def _entries(path: Path, name: str, facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the card says of a file, or of the files of a folder, by their names."""
    named = {name: path}
    if path.is_dir():
        named = {f"{name}/{file.name}": file for file in sorted(path.iterdir())}
    found = {}
    for name, file in named.items():
        with open(file, "rb") as content:
            digest = hashlib.sha256()
            while block := content.read(2**20):
                digest.update(block)
        found[name] = {**facts, "bytes": file.stat().st_size, "sha256": digest.hexdigest()}
    return found
