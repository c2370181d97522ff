"""Every kind of image file: its true pixels in both loaders, or one line with its path."""

import os
import re
import socket
import time
import warnings

import numpy as np
import pytest
from PIL import Image, ImageOps

from simco_methods.data import ImageSet, UnreadableImage
from simco_methods.data.decode import ENDINGS, EXTENSIONS, FORMATS, as_rgb, read_rgb, read_size
from simco_methods.data.readable import leave_out_unreadable
from tests.data.pictures import (
    COLOURS,
    REFUSED,
    RIGHT,
    apart,
    encoded,
    loaders,
    lying,
    png,
    rgb,
    tags_last,
    trained_on,
    validated_on,
    write,
)

LOADERS = pytest.mark.parametrize("loader", ["workers", "device"])


@LOADERS
@pytest.mark.parametrize("kind", RIGHT)
def test_an_image_shows_its_true_pixels(kind, loader, tmp_path):
    images = write(tmp_path, RIGHT[kind])
    *_, truth, tolerance = RIGHT[kind]
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        data = loaders(images, loader)
        for pixels, labels in (trained_on(data), validated_on(data)):
            assert apart(pixels[0], truth) <= tolerance and labels == [0]
    assert not [warning for warning in given if "PIL" in warning.filename]


@LOADERS
@pytest.mark.parametrize("kind", REFUSED)
def test_a_bad_image_is_named_or_left_out(kind, loader, tmp_path):
    images = write(tmp_path, RIGHT["png"], REFUSED[kind], RIGHT["grey"])
    bad, why = re.escape(images.images[1]), REFUSED[kind][2]
    data = loaders(images, loader)
    for read in (trained_on, validated_on):
        with pytest.raises(UnreadableImage, match=f"^cannot read the image {bad}: .*{why}.*$"):
            read(data)
    kept, left_out = leave_out_unreadable(images)
    assert list(left_out) == ["1." + REFUSED[kind][0]] and re.search(
        why, left_out[list(left_out)[0]]
    )
    data = loaders(kept, loader)
    for read in (trained_on, validated_on):
        pixels, labels = read(data)
        assert labels == [0, 2] and apart(pixels[0], COLOURS) == 0


def _nothing(path):
    pass


def _pipe(path):
    os.mkfifo(path)


def _socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


NO_FILES = {
    "not there": (_nothing, "No such file"),
    "pipe": (_pipe, "no file but a pipe"),
    "socket": (_socket, "No such device or address"),
    "folder": (os.mkdir, "Is a directory"),
    "broken link": (lambda path: path.symlink_to("gone"), "a link to a file that is not there"),
    "link to itself": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
}


@LOADERS
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_named_and_waits_for_nobody(kind, loader, tmp_path):
    make, why = NO_FILES[kind]
    make(tmp_path / "x.jpg")
    images = ImageSet([str(tmp_path / "x.jpg")], np.zeros(1, dtype=np.int64), ["a"])
    data = loaders(images, loader)
    for read in (trained_on, validated_on):
        with pytest.raises(UnreadableImage, match=f"x.jpg: .*{why}"):
            read(data)


@LOADERS
def test_a_file_that_may_not_be_read_is_named(loader, tmp_path, monkeypatch):
    images = write(tmp_path, RIGHT["png"])
    os.chmod(images.images[0], 0)
    if os.geteuid() == 0:  # who may read all

        def refuse(path, flags):
            raise PermissionError(13, "Permission denied", path)

        monkeypatch.setattr("simco_methods.data.decode._without_waiting", refuse)
    data = loaders(images, loader)
    for read in (trained_on, validated_on):
        with pytest.raises(UnreadableImage, match="0.png: Permission denied"):
            read(data)


def test_a_worker_s_error_is_the_same_line(tmp_path):
    images = write(tmp_path, REFUSED["empty"])
    with pytest.raises(UnreadableImage) as caught:
        trained_on(loaders(images, "workers", workers=1))
    with pytest.raises(UnreadableImage) as here:
        images.load(0)
    assert str(caught.value) == str(here.value)
    assert str(here.value) == f"cannot read the image {images.images[0]}: it is empty"


@pytest.mark.parametrize(
    "name", ["Größe 猫.png", "two\nlines.png", b"\xff\xfe.png", "UnreadableImage: x\n.png"]
)
def test_any_name_can_be_read_and_shown(name, tmp_path):
    path = os.path.join(os.fsencode(tmp_path), os.fsencode(name))
    with open(path, "wb") as file:
        file.write(encoded(rgb(), "PNG"))
    images = ImageSet([os.fsdecode(path)], np.zeros(1, dtype=np.int64), ["a"])
    for loader in ("workers", "device"):
        assert apart(trained_on(loaders(images, loader))[0][0], COLOURS) == 0
    assert len(images.digest()) == 16
    open(path, "wb").close()
    with pytest.raises(UnreadableImage) as caught:
        trained_on(loaders(images, "workers", workers=1))
    line = str(caught.value)
    assert line.encode() and line.endswith(".png: it is empty") and line.count("\n") == 0
    assert line.startswith(f"cannot read the image {tmp_path}/")
    if name == "Größe 猫.png":
        assert name in line


@pytest.mark.parametrize("size, crop", [((1, 1), 16), ((10, 3000), 32), ((3000, 10), 32)])
def test_both_loaders_agree_on_odd_sizes(size, crop, tmp_path):
    ramp = np.linspace(0, 255, size[0] * size[1] * 3).reshape(size[1], size[0], 3).astype(np.uint8)
    images = write(tmp_path, ("png", encoded(Image.fromarray(ramp), "PNG")))
    sides = [loaders(images, loader, crop=crop) for loader in ("workers", "device")]
    for read in (trained_on, validated_on):
        (one, _), (other, _) = map(read, sides)
        assert one.shape == (1, crop, crop, 3) and apart(one, other) <= 2
        assert np.abs(one.astype(float).mean() - ramp.mean()) < 3


# What each EXIF orientation asks for.
TURNS = {
    1: lambda stored: stored,
    2: np.fliplr,
    3: lambda stored: np.rot90(stored, 2),
    4: np.flipud,
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: np.rot90(stored, 2).swapaxes(0, 1),
    8: np.rot90,
}
TURNED = {
    "png": lambda *args: lying(args[0], "PNG", args[1]),
    "late.png": lambda *args: tags_last(lying(args[0], "PNG", args[1])),
    "webp": lambda *args: lying(args[0], "WEBP", args[1], lossless=True),
    "tif": lambda *args: lying(args[0], "TIFF", args[1]),
    "lzw.tif": lambda *args: lying(args[0], "TIFF", args[1], compression="tiff_lzw"),
}


@pytest.mark.parametrize("kind", TURNED)
@pytest.mark.parametrize("orientation", TURNS)
def test_a_photograph_is_upright(orientation, kind, tmp_path):
    """The same as an upright copy of it in both loaders, its size from its header too."""
    stored = COLOURS[:10]
    upright = np.ascontiguousarray(TURNS[orientation](stored))
    content = TURNED[kind](Image.fromarray(stored), orientation)
    images = write(
        tmp_path, (kind, content), ("png", encoded(Image.fromarray(upright), "PNG")), RIGHT["png"]
    )
    path = images.images[0]
    assert read_size(path) == upright.shape[:2]
    picture = read_rgb(path)
    assert np.array_equal(picture, upright) and np.array_equal(as_rgb(picture), upright)
    with Image.open(path) as image:
        assert np.array_equal(ImageOps.exif_transpose(image), upright)
    for loader in ("workers", "device"):
        data = loaders(images, loader)
        for read in (trained_on, validated_on):
            pixels, _ = read(data)
            assert apart(pixels[0], pixels[1]) == 0


def test_formats_are_those_that_pillow_has_here():
    supported = Image.registered_extensions()
    expected = [e for name in FORMATS for e in ENDINGS[name]]
    assert list(EXTENSIONS) == expected and set(FORMATS) <= set(ENDINGS)
    # No other program is started for a file, whatever it is called.
    assert not {"EPS", "PDF", "WMF"} & {supported.get(ending) for ending in EXTENSIONS}
    for name, ending in (("JPEG2000", ".jp2"), ("AVIF", ".avif"), ("WEBP", ".webp")):
        try:
            content = encoded(rgb(), name)
        except (OSError, KeyError):
            assert name not in FORMATS and ending not in EXTENSIONS
        else:
            assert content and name in FORMATS and ending in EXTENSIONS


@LOADERS
def test_a_large_image_is_right_and_a_larger_one_refused(loader, tmp_path, monkeypatch):
    """Of Pillow's two limits for what may be a decompression bomb."""
    images = write(tmp_path, RIGHT["png"])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)  # and twice as many to refuse
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert apart(trained_on(loaders(images, loader))[0][0], COLOURS) == 0
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(UnreadableImage, match="0.png: Image size .256 pixels. exceeds limit"):
        trained_on(loaders(images, loader))


def test_a_bomb_is_refused_by_its_header(tmp_path):
    images = write(tmp_path, REFUSED["bomb"])
    started = time.perf_counter()
    with pytest.raises(UnreadableImage):
        images.load(0)
    assert time.perf_counter() - started < 0.5


@pytest.mark.slow
def test_100_megapixels(tmp_path):
    """Of one bit in the file, 400 MB as RGB."""
    side = 10_000
    row = b"\0" + bytes(side // 16) + b"\xff" * (side // 16)  # black, then white
    images = write(tmp_path, ("png", png(side, side, 1, 0, row * side)))
    data = loaders(images, "auto", workers=1)
    pixels, _ = trained_on(data)
    assert (
        data.resident is None and "10000 x 10000 pixels: of images above 128 x 128" in data.loader
    )
    assert pixels[0, :, :7].max() == 0 and pixels[0, :, 9:].min() == 255
    assert validated_on(data)[0][0, :, :7].max() == 0


def test_a_picture_of_another_size_than_its_header_says_is_named(tmp_path, monkeypatch):
    images = write(tmp_path, RIGHT["png"])
    monkeypatch.setattr(
        "simco_methods.data.decode.as_rgb", lambda image: image.convert("RGB").resize((3, 5))
    )
    with pytest.raises(UnreadableImage, match="it is 3 x 5 pixels large, its header says 16 x 16"):
        read_rgb(images.images[0])
