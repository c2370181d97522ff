"""Places of images as a figure, and as a drawing of a page that names what is pointed at."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from simco_methods.analysis.finding import canvas, colours, save_figure
from simco_methods.data.images import UNLABELLED
from simco_methods.files import write_csv
from simco_methods.looking.coordinates import chosen_method, coordinates
from simco_methods.looking.images import Shown
from simco_methods.page import image, text
from simco_methods.wording import shortened

_NO_CLASS = "#888888"
_ALONE = "#1f77b4"  # of all images where none has a class
_LEGEND = 100  # classes that a figure can name
_LETTERS = 24  # of a class in its legend
_MARKERS = "osD^vPX*<>"
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
    shades = palette([label for _, label in groups], len(classes))
    rows = [
        {"image": name, "class": shown.class_of(row), "x": f"{x:.6g}", "y": f"{y:.6g}"}
        for row, (name, (x, y)) in enumerate(zip(shown.names, places, strict=True))
    ]
    if not classes:
        rows = [{key: row[key] for key in ("image", "x", "y")} for row in rows]
    write_csv(folder / "map.csv", rows)
    save_figure(_figure(places, labels, groups, shades, said), folder / "map.png")
    note = f"{said}{why}, seed {seed}; {shown.what}."
    if not classes:
        note += " No class is known, so all are of one colour."
    parts = [f"<p>{text(note)}</p>"]
    if len(places) > _DRAWN:
        return [*parts, image(folder / "map.png")]
    hint = "Point at a dot for its name" + (", choose classes below the map." if classes else ".")
    parts.append(f"<p>{hint}</p>")
    parts.append(_drawing(places, labels, groups, shades, shown))
    if classes:
        parts += [_legend(groups, shades), _SCRIPT]
    return parts


def palette(labels: Sequence[int], classes: int) -> dict[int, str]:
    """A colour for each label; grey for those without a class."""
    if not classes:
        return dict.fromkeys(labels, _ALONE)
    shades = colours(classes)
    return {label: _NO_CLASS if label == UNLABELLED else shades[label] for label in labels}


def _figure(
    places: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[tuple[str | None, int]],
    shades: dict[int, str],
    said: str,
) -> Figure:
    wide, high = np.maximum(np.ptp(places, axis=0), 1e-9)
    ratio = float(np.clip(high / wide, 0.5, 1.5))
    height = 7.0 * min(1.0, ratio)
    named = [shortened(name or "no class", _LETTERS) for name, _ in groups]
    legend = 0  # columns of it
    if len(groups) <= _LEGEND and any(name is not None for name, _ in groups):
        legend = -(-len(groups) // int(height / 0.2))
    column = 0.5 + 0.06 * max(map(len, named))
    figure = canvas(height / ratio + 0.2 + column * legend, height + 0.4)
    axes = figure.subplots()
    size = float(np.clip(6000 / len(places), 6, 30))
    for number, (label_name, (_, label)) in enumerate(zip(named, groups, strict=True)):
        x, y = places[labels == label].T
        # Colours of many classes are alike: their markers differ.
        marker = _MARKERS[number % len(_MARKERS)] if len(groups) > 10 else "o"
        axes.scatter(x, y, s=size, c=shades[label], label=label_name, linewidths=0, marker=marker)
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.set_title(said, fontsize=9)
    if legend:
        handles, names = axes.get_legend_handles_labels()
        for handle in handles:
            handle.set_sizes([30])
        figure.legend(
            handles, names, loc="outside right upper", ncols=legend, fontsize=7, frameon=False
        )
    elif len(groups) > 1:
        axes.set_xlabel(f"{len(groups)} classes, named in map.csv", fontsize=8)
    return figure


def _drawing(
    places: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[tuple[str | None, int]],
    shades: dict[int, str],
    shown: Shown,
) -> str:
    low, high = places.min(axis=0), places.max(axis=0)
    scale = (_WIDTH - 2 * _MARGIN) / max(*(high - low), 1e-9)
    spot = (places - low) * scale + _MARGIN
    height = spot[:, 1].max() + _MARGIN
    radius = float(np.clip(90 / np.sqrt(len(places)), 2.5, 7))
    lines = [f"<svg class='map' viewBox='0 0 {_WIDTH} {height:.0f}' role='img'>"]
    for name, label in groups:
        lines.append(f"<g id='c{label}' fill='{shades[label]}' fill-opacity='.8'>")
        for row in np.flatnonzero(labels == label):
            x, y = spot[row]
            said = text(f"{name}: {shown.names[row]}" if name else shown.names[row])
            lines.append(
                f"<circle cx='{x:.1f}' cy='{height - y:.1f}' r='{radius:.1f}'>"
                f"<title>{said}</title></circle>"
            )
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"])


def _legend(groups: Sequence[tuple[str | None, int]], shades: dict[int, str]) -> str:
    entries = (
        f"<button type='button' data-of='c{label}'><i style='background:{shades[label]}'></i>"
        f"{html.escape(name or 'no class')}</button>"
        for name, label in groups
    )
    return f"<div class='legend' title='choose classes'>{''.join(entries)}</div>"
