"""Places of images as a figure, and as a drawing of a page that names what is pointed at."""

from __future__ import annotations

import colorsys
import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from simco_methods.analysis.finding import canvas, save_figure
from simco_methods.data.images import UNLABELLED
from simco_methods.files import write_csv
from simco_methods.looking.coordinates import chosen_method, coordinates
from simco_methods.looking.images import Shown
from simco_methods.page import image, text

_NO_CLASS = "#888888"
_ALONE = "#1f77b4"  # of all images where none has a class
_LEGEND = 60  # classes that a figure can name
_DRAWN = 5000  # points that a page holds one by one
_WIDTH, _MARGIN = 900, 12
STYLE = """
.map { width: 100%; height: auto; border: 1px solid #ddd }
.legend { display: flex; flex-wrap: wrap; gap: .2rem; max-height: 14rem; overflow-y: auto;
  margin: .5rem 0 }
.legend button { font: 12px system-ui, sans-serif; border: 1px solid #ddd; border-radius: 4px;
  background: none; padding: .1rem .4rem; cursor: pointer; color: inherit }
.legend button.on { border-color: #000; background: #eee }
.legend i { display: inline-block; width: .7em; height: .7em; border-radius: 50%;
  margin-right: .3em }
.map.some g { opacity: .06 } .map.some g.on { opacity: 1 }
"""
# Classes that are chosen in the legend stand out.
_SCRIPT = """<script>
for (const button of document.querySelectorAll('.legend button')) button.onclick = () => {
  const map = document.querySelector('.map');
  const on = button.classList.toggle('on');
  map.querySelector('#' + button.dataset.of).classList.toggle('on', on);
  map.classList.toggle('some', map.querySelector('g.on') !== null);
};
</script>"""


def make_map(shown: Shown, method: str, seed: int, folder: Path) -> list[str]:
    """Writes ``map.png`` and ``map.csv``; returns the parts of a page.

    Raises:
        ValueError: images of which there is no map; see :func:`coordinates`.
    """
    method, why = chosen_method(method)
    places, said = coordinates(shown.features.numpy(), method, seed)
    labels, classes = shown.images.labels, shown.images.classes
    groups = [
        (shown.class_of(int(np.flatnonzero(labels == label)[0])), label)
        for label in np.unique(labels)
    ]
    colours = palette([label for _, label in groups], len(classes))
    rows = [
        {"image": name, "class": shown.class_of(row), "x": f"{x:.6g}", "y": f"{y:.6g}"}
        for row, (name, (x, y)) in enumerate(zip(shown.names, places, strict=True))
    ]
    if not classes:
        rows = [{key: row[key] for key in ("image", "x", "y")} for row in rows]
    write_csv(folder / "map.csv", rows)
    save_figure(_figure(places, labels, groups, colours, said), folder / "map.png")
    note = f"{said}{why}, seed {seed}; {shown.what}."
    if not classes:
        note += " No class is known, so all are of one colour."
    parts = [f"<p>{text(note)}</p>"]
    if len(places) > _DRAWN:
        return [*parts, image(folder / "map.png")]
    hint = "Point at a dot for its name" + (", choose classes below the map." if classes else ".")
    parts.append(f"<p>{hint}</p>")
    parts.append(_drawing(places, labels, groups, colours, shown))
    if classes:
        parts += [_legend(groups, colours), _SCRIPT]
    return parts


def palette(labels: Sequence[int], classes: int) -> dict[int, str]:
    """A colour for each label: as unlike as can be of up to 20 classes; of more, neighbours in the
    numbering are unlike and three shades go round the circle of hues."""
    if not classes:
        return dict.fromkeys(labels, _ALONE)
    found = {}
    for label in labels:
        if label == UNLABELLED:
            found[label] = _NO_CLASS
        elif classes <= 20:
            found[label] = to_hex(colormaps["tab10" if classes <= 10 else "tab20"](int(label)))
        else:
            hue, value = label * 0.618034 % 1, (0.9, 0.65, 0.4)[label % 3]
            found[label] = to_hex(colorsys.hsv_to_rgb(hue, 0.85, value))
    return found


def _figure(
    places: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[tuple[str | None, int]],
    colours: dict[int, str],
    said: str,
) -> Figure:
    named = any(name is not None for name, _ in groups)
    columns = -(-len(groups) // 20) if named and len(groups) <= _LEGEND else 0
    figure = canvas(7 + 1.5 * columns, 6.5)
    axes = figure.subplots()
    size = float(np.clip(6000 / len(places), 3, 30))
    for name, label in groups:
        x, y = places[labels == label].T
        axes.scatter(x, y, s=size, c=colours[label], label=name or "no class", linewidths=0)
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.set_title(said, fontsize=9)
    if columns:
        handles, names = axes.get_legend_handles_labels()
        names = [name if len(name) <= 24 else f"{name[:23]}…" for name in names]
        for handle in handles:
            handle.set_sizes([30])
        axes.legend(
            handles,
            names,
            loc="upper left",
            bbox_to_anchor=(1, 1),
            ncols=columns,
            fontsize=7,
            frameon=False,
        )
    elif named:
        axes.set_xlabel(f"{len(groups)} classes, named in map.csv", fontsize=8)
    return figure


def _drawing(
    places: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[tuple[str | None, int]],
    colours: dict[int, str],
    shown: Shown,
) -> str:
    low, high = places.min(axis=0), places.max(axis=0)
    scale = (_WIDTH - 2 * _MARGIN) / max(*(high - low), 1e-9)
    spot = (places - low) * scale + _MARGIN
    height = spot[:, 1].max() + _MARGIN
    radius = float(np.clip(90 / np.sqrt(len(places)), 2.5, 7))
    lines = [f"<svg class='map' viewBox='0 0 {_WIDTH} {height:.0f}' role='img'>"]
    for name, label in groups:
        lines.append(f"<g id='c{label}' fill='{colours[label]}' fill-opacity='.8'>")
        for row in np.flatnonzero(labels == label):
            x, y = spot[row]
            said = text(f"{name}: {shown.names[row]}" if name else shown.names[row])
            lines.append(
                f"<circle cx='{x:.1f}' cy='{height - y:.1f}' r='{radius:.1f}'>"
                f"<title>{said}</title></circle>"
            )
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"])


def _legend(groups: Sequence[tuple[str | None, int]], colours: dict[int, str]) -> str:
    entries = (
        f"<button type='button' data-of='c{label}'><i style='background:{colours[label]}'></i>"
        f"{html.escape(name or 'no class')}</button>"
        for name, label in groups
    )
    return f"<div class='legend' title='choose classes'>{''.join(entries)}</div>"
