"""Damaged image files: a picture of the header's size, or one line with the path; never else."""

import time
import warnings
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from simco_methods.data import UnreadableImage
from simco_methods.data.decode import read_rgb, read_size
from tests.data.pictures import COLOURS, RIGHT, encoded, rgb

_FRAMES = {"save_all": True, "append_images": [Image.new("RGB", (16, 16), (1, 2, 3))]}
SEEDS = {
    **{name: content for name, (_, content, *_) in RIGHT.items()},
    "progressive jpeg": encoded(rgb(), "JPEG", progressive=True),
    "jpeg with exif": encoded(rgb(), "JPEG", exif=b"Exif\0\0" + RIGHT["tiff"][1][:64]),
    "lossy webp": encoded(rgb(), "WEBP", **_FRAMES),
    **{
        f"tiff {name}": encoded(rgb(), "TIFF", compression=name)
        for name in ("tiff_adobe_deflate", "jpeg", "packbits")
    },
    "fax tiff": encoded(rgb().convert("1"), "TIFF", compression="group4"),
    "plain ppm": b"P3\n16 16\n255\n" + b" ".join(b"%d" % value for value in COLOURS.ravel()),
    "bitmap": encoded(rgb().convert("1"), "PPM"),
}


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """One to four changes: bits turned, bytes put in or over or taken out, the end cut."""
    for _ in range(random.integers(1, 5)):
        size = max(len(content), 1)
        # Half of them within the first bytes, where most of the structure is.
        reach = min(size, 64) if random.random() < 0.5 else size
        start, length = int(random.integers(reach)), int(random.integers(1, 9))
        some = random.bytes(length) if random.random() < 0.5 else bytes([random.choice([0, 255])])
        match random.integers(6):
            case 0:
                turned = content[start : start + 1] or b"\0"
                some = bytes([turned[0] ^ 1 << int(random.integers(8))])
                content = content[:start] + some + content[start + 1 :]
            case 1:
                content = content[:start]
            case 2:
                content = content[:start] + some + content[start:]
            case 3 | 4:
                content = content[:start] + some + content[start + len(some) :]
            case 5:
                content = content[:start] + content[start + length :]
    return content


def campaign(folder, seed: int, count: int) -> Counter:
    """How many of ``count`` damaged files could be read and how many were refused."""
    random = np.random.default_rng(seed)
    names, outcome = list(SEEDS), Counter()
    for number in range(count):
        name = names[number % len(names)]
        path = folder / f"{number % 50} {name}.jpg"
        path.write_bytes(damaged(SEEDS[name], random))
        started = time.perf_counter()
        try:
            size = read_size(str(path))
            picture = read_rgb(str(path))
        except UnreadableImage as error:
            line = str(error)
            assert line.startswith(f"cannot read the image {path}: ") and line.isprintable()
            assert len(line) > len(f"cannot read the image {path}: ")
            outcome["refused"] += 1
        else:
            assert picture.mode == "RGB" and picture.size == size[::-1] and min(size) > 0
            assert len(picture.tobytes()) == 3 * size[0] * size[1]
            outcome["read"] += 1
        assert time.perf_counter() - started < 5, f"{name}: {path.read_bytes()!r}"
    return outcome


def check(outcome: Counter, count: int) -> None:
    print(f"{count} damaged files of {len(SEEDS)} kinds: {dict(outcome)}")
    assert outcome.total() == count
    assert outcome["read"] > count / 10 and outcome["refused"] > count / 4


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch):
    # Of a decompression bomb: a damaged header can ask for gigabytes.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_damaged_file_is_read_or_named(tmp_path):
    check(campaign(tmp_path, seed=0, count=600), 600)


@pytest.mark.slow
def test_many_damaged_files_are_read_or_named(tmp_path):
    check(campaign(tmp_path, seed=1, count=8_000), 8_000)
