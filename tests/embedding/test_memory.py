"""Memory does not grow with the number of images."""

import os

import pytest

from tests.embedding.conftest import SMALL, draw
from tests.helpers import run_script

PEAK = """
import sys, torch
from simco_methods.embed import main
from simco_methods.machine import peak_memory_mib
try:
    main()
finally:
    print("peak", peak_memory_mib(torch.device("cpu")))
"""


@pytest.mark.slow
def test_ten_times_the_images_take_no_more_memory(weights, tmp_path):
    draw(tmp_path / "image.png", 0)
    peaks = {}
    for count in (2_000, 20_000):
        folder = tmp_path / str(count)
        for number in range(count):
            path = folder / f"{number % 100}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(tmp_path / "image.png", path)
        settings = [*SMALL, f"out={tmp_path / f'out{count}'}", "batch_size=64"]
        done = run_script("-c", PEAK, weights(), folder, *settings, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        peaks[count] = float(done.stdout.split()[-1])
    assert peaks[20_000] < peaks[2_000] + 4  # MiB; pixels alone are 13 more
