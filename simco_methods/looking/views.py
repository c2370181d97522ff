"""What the network sees of an image, in its training and afterwards."""

from __future__ import annotations

from pathlib import Path

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simco_methods.analysis.finding import save_figure
from simco_methods.config.walk import reason
from simco_methods.data.datasets import DATASETS
from simco_methods.data.loaders import PretrainSet
from simco_methods.embedding.neighbours import Tile, draw_sheet
from simco_methods.looking.images import Shown
from simco_methods.page import image, text


def make_views(shown: Shown, count: int, seed: int, folder: Path) -> list[str]:
    """Writes ``views.png``; returns the parts of a page.

    Args:
        shown: of which some images are taken.
        count: views of each entry of the augmentations.
        seed: of their draws.
        folder: where to write.
    """
    card = shown.encoder.card
    views, why = training_views(shown, seed)
    sheet = []
    for row in shown.examples():
        picture = shown.images.load(row)
        tiles = [Tile(picture, [shown.names[row], "as it is"], "black")]
        tiles.append(Tile(card.preprocessing.view(picture), ["evaluation"]))
        if views is not None:
            for epoch in range(count):
                made = views[epoch, row][1]
                tiles += [
                    Tile(views.preprocessings[number].inverse(view), [f"view {number + 1}"])
                    for number, view in enumerate(made)
                ]
        sheet.append(tiles)
    save_figure(draw_sheet(sheet), folder / "views.png")
    note = "Left the image, then what an evaluation sees of it"
    if views is None:
        note += f". What the training saw is not known: {why}."
    else:
        note += (
            f", then {count} draws of each of the training's {len(views.settings)} views (seed "
            f"{seed})."
        )
    return [f"<p>{text(note)}</p>", image(folder / "views.png")]


def training_views(shown: Shown, seed: int) -> tuple[PretrainSet | None, str]:
    """The training's views of the shown images, or None and why they are not known."""
    settings = OmegaConf.create(shown.encoder.card.settings)
    entries = OmegaConf.select(settings, "augmentations")
    if not entries:
        return None, "the encoder's file does not hold the configuration of its training"
    dataset = OmegaConf.select(settings, "data.dataset")
    dataset = dataset if dataset in DATASETS else "custom"
    try:
        return PretrainSet(shown.images, dataset, entries, seed), ""
    except (OmegaConfBaseException, KeyError, TypeError, ValueError) as error:
        return None, f"its augmentations are not as this version writes them ({reason(error)})"
