"""Figures: what is text in them, and what is a formula."""

import numpy as np
from PIL import Image

from simco_methods.analysis.finding import canvas, save_figure


def drawn(title, name):
    figure = canvas(5, 3)
    left, right = figure.subplots(1, 2)
    left.plot([1, 10, 1e4], [1, 10, 1e5], label=name)
    left.set(xscale="log", yscale="log", title=title)
    left.legend()
    right.set_xticks([0, 1], [name, name])
    return figure


def test_names_are_no_formulas_and_powers_of_axes_are(tmp_path):
    save_figure(drawn("a$b$c", "$1$2"), tmp_path / "saved.png")
    drawn(r"a\$b\$c", r"\$1\$2").savefig(tmp_path / "expected.png", dpi=120)
    saved, expected = (np.asarray(Image.open(tmp_path / f"{n}.png")) for n in ("saved", "expected"))
    assert np.array_equal(saved, expected)
