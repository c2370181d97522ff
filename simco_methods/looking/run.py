"""``simco-visualize``: what it does, in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from simco_methods.data.decode import printable, read_rgb
from simco_methods.embedding.listing import check_apart
from simco_methods.encoder import Encoder
from simco_methods.evaluation.settings import NoImagesNamed
from simco_methods.files import together, user_path
from simco_methods.looking.coordinates import load_umap
from simco_methods.looking.curves import make_curves, read_curves, run_of
from simco_methods.looking.images import Shown, shown_images
from simco_methods.looking.map import STYLE, make_map
from simco_methods.looking.neighbours import make_neighbours
from simco_methods.looking.settings import VisualizeSettings
from simco_methods.looking.views import make_views
from simco_methods.machine import hardware, in_words, versions
from simco_methods.measures import MEASURES, in_percent
from simco_methods.page import facts_table, text, write_page
from simco_methods.progress import Progress
from simco_methods.report import RunRecord
from simco_methods.wording import count

PAGE = "visualize.html"
_FILES = (
    PAGE, "map.png", "map.csv", "neighbours.png", "neighbours.csv", "views.png", "curves.png"
)  # fmt: skip


def visualize(source: str | Path, settings: VisualizeSettings) -> Path:
    """Draws an encoder onto one page; returns the folder that it is in.

    What cannot be made is named on the page with its reason. What was asked for and is not there
    is an error, before anything is written.

    Args:
        source: as of :func:`~simco_methods.encoder.load_encoder`.
        settings: what to draw.

    Raises:
        ValueError, OSError, ImportError: settings, an encoder, images or runs that do not fit, by
            name; or nothing that could be drawn.
    """
    source = Path(source)
    out = settings.out_folder(source, "visualize")
    if settings.folder is not None:
        check_apart(out, user_path(settings.folder))
    if settings.method == "umap":
        with Progress("loading umap-learn"):
            load_umap()
    queries = [(path, read_rgb(path)) for path in settings.query or []]
    runs = [read_curves(user_path(folder)) for folder in dict.fromkeys(settings.runs or [])]
    encoder = settings.load(str(source))
    reasons: dict[str, str] = {}
    shown = _images(encoder, settings, reasons)
    runs = _with_own(source, runs, reasons)
    sections: dict[str, tuple[Any, Callable[[Path], list[str]]]] = {
        "Map": (shown, lambda part: make_map(shown, settings.method, settings.seed, part)),
        "Neighbours": (
            shown,
            lambda part: make_neighbours(shown, queries, settings.neighbours, part),
        ),
        "What the network sees": (
            shown,
            lambda part: make_views(shown, settings.views, settings.seed, part),
        ),
        "Training": (runs, lambda part: make_curves(runs, part)),
    }
    made: dict[str, list[str]] = {}
    facts = _facts(source, encoder, shown, settings)
    with together(out, _FILES) as part:
        for title, (needed, make) in sections.items():
            try:
                if not needed and title in reasons:
                    raise ValueError(reasons[title])
                with Progress(f"drawing: {title}"):
                    made[title] = make(part)
            except ValueError as error:
                reasons[title] = str(error)
                print(f"{title}: not made: {error}", flush=True)
        if not made:
            said = "; ".join(dict.fromkeys(reasons.values()))
            raise ValueError(f"there is nothing to draw: {said}")
        parts = [facts_table(facts)]
        for title in sections:
            parts.append(f"<h2>{text(title)}</h2>")
            parts += made.get(title) or [f"<p>Not made: {text(reasons[title])}</p>"]
        write_page(part / PAGE, f"The encoder {printable(source)}", parts, STYLE)
    print(f"all of it: {printable(out / PAGE)}", flush=True)
    return out


def _images(encoder: Encoder, settings: VisualizeSettings, reasons: dict[str, str]) -> Shown | None:
    """The images; where nobody has named any, their lack is a reason and no error."""
    try:
        return shown_images(encoder, settings)
    except (ValueError, FileNotFoundError) as error:
        if settings.folder is not None or "data" in settings.config or settings.split:
            raise
        said = f"{error} (or folder=FOLDER)" if isinstance(error, NoImagesNamed) else str(error)
        reasons.update(dict.fromkeys(("Map", "Neighbours", "What the network sees"), said))
        return None


def _with_own(source: Path, runs: list[RunRecord], reasons: dict[str, str]) -> list[RunRecord]:
    """The encoder's own run, if it is of one, before the others."""
    own = run_of(source)
    if own is None or own.resolve() in [run.folder.resolve() for run in runs]:
        return runs
    try:
        return [read_curves(own), *runs]
    except ValueError as error:
        reasons["Training"] = str(error)
        return runs


def _facts(
    source: Path, encoder: Encoder, shown: Shown | None, settings: VisualizeSettings
) -> dict[str, Any]:
    card = encoder.card
    seen, known = card.preprocessing, ((card.epochs, "epoch"), (card.steps, "step"))
    trained = [count(number, thing) for number, thing in known if number]
    mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (seen.mean, seen.std))
    facts = {
        "encoder": printable(source),
        "backbone": f"{card.backbone}, {card.features} features",
        "method": card.method or "not known",
        "trained on": ", ".join([card.dataset or "not known", *trained]),
        "its images": f"{seen.size} pixels, of {seen.resize} before the crop; mean {mean}; "
        f"std {std}",
        "accuracies": ", ".join(in_percent(card.accuracies, MEASURES)),
        "trained with": in_words(card.versions),
        "shown": shown.what if shown else None,
        "seed": settings.seed,
        "machine": hardware(encoder.device, 1),
        "versions": in_words(versions()),
    }
    return {name: value for name, value in facts.items() if value not in ("", None)}
