"""A trained encoder and its page, and an encoder of which nothing is known."""

import shutil

import pytest

from simco_methods.looking.run import visualize
from simco_methods.looking.settings import VisualizeSettings
from simco_methods.settings import parse_settings
from tests.embedding.conftest import photos, weights
from tests.evaluation.conftest import digits_run

__all__ = ["digits_run", "photos", "weights"]
QUICK = ["device=cpu", "num_workers=0", "examples=2", "neighbours=3", "views=2"]


def parsed(*arguments):
    return parse_settings("simco-visualize", VisualizeSettings, arguments)


@pytest.fixture(scope="session")
def page(digits_run, tmp_path_factory):
    """The page of a finished run, beside another run that is not finished."""
    other = tmp_path_factory.mktemp("other") / "running"
    other.mkdir()
    shutil.copy(digits_run / "metrics.csv", other)
    (other / "config.yaml").write_text("method: mocov2\nmethod_kwargs: {symmetric: true}\n")
    out = tmp_path_factory.mktemp("page")
    settings = [*QUICK, "images=40", "method=tsne", f"runs=[{other}]", f"out={out}"]
    return visualize(digits_run, parsed(*settings))
