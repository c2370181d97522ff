"""One image by every way: its path, opened by Pillow, an array, the lines that an export prints."""

import functools
import json

import numpy as np
import pytest
import torch
from PIL import Image

from simco_methods.data.decode import UnreadableImage
from simco_methods.encoder.encoder import as_picture
from simco_methods.encoder.naming import transform_lines
from tests.data.pictures import COLOURS, DEEP, DEEP_COLOURS, GREY, REFUSED, RIGHT, apart, write
from tests.encoder.conftest import encoder_of, export


@functools.cache
def of_an_export(name="to_rgb"):
    """``to_rgb`` or ``transform`` of the lines that an export prints."""
    made = {}
    exec("\n".join(transform_lines(encoder_of().card)), made)
    return made[name]


@pytest.mark.parametrize("kind", RIGHT)
def test_one_image_has_the_same_pixels_by_every_way(kind, tmp_path):
    (path,) = write(tmp_path, RIGHT[kind]).images
    picture = as_picture(path)
    assert apart(np.asarray(picture), RIGHT[kind][2]) <= RIGHT[kind][3]
    with Image.open(path) as image:
        assert np.array_equal(as_picture(image), picture)
        assert np.array_equal(as_picture(image), picture)  # it was left as it was
    if kind == "broken exif":
        return  # for an export's lines too
    with Image.open(path) as image:
        assert np.array_equal(of_an_export()(image), picture)


@pytest.mark.parametrize("kind", ["16 bits", "16 bits tiff", "lying jpeg", "lying 16 bits tiff"])
def test_one_image_has_the_same_features_by_every_way(kind, tmp_path):
    (path,) = write(tmp_path, RIGHT[kind]).images
    encoder, transform = encoder_of(), of_an_export("transform")
    expected = encoder.transform([path])
    with Image.open(path) as image:
        assert np.array_equal(encoder.transform([image]), expected)
        with torch.no_grad():
            found = encoder.backbone(transform(image)[None]).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    if kind.startswith("16"):
        assert np.array_equal(encoder.transform(DEEP[None]), expected)


def test_16_bits_in_arrays_and_modes():
    grey = np.repeat(GREY[..., None], 3, axis=-1)
    for deep in (DEEP, DEEP.astype(">u2"), Image.fromarray(DEEP)):
        assert np.array_equal(as_picture(deep), grey)
    big_endian = Image.frombytes("I;16B", DEEP.shape, DEEP.astype(">u2").tobytes())
    assert np.array_equal(as_picture(big_endian), grey)
    assert np.array_equal(of_an_export()(big_endian), grey)
    assert np.array_equal(as_picture(DEEP_COLOURS), COLOURS)
    ends = as_picture(np.array([[0, 255, 256, 65535]], np.uint16))
    assert np.asarray(ends)[0, :, 0].tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize("mode", ["I", "F"])
def test_a_range_that_nobody_knows_is_refused(mode):
    image = Image.fromarray(DEEP.astype(np.int32)).convert(mode)
    with pytest.raises(ValueError, match=f"a Pillow image: .*32 bits .mode {mode}.; save it with"):
        as_picture(image)
    with pytest.raises(ValueError, match=f"mode {mode}: scale the image to 8 bits"):
        of_an_export()(image)
    with pytest.raises(ValueError, match="uint16 from 0 to 65535, got int32"):
        as_picture(DEEP.astype(np.int32))


@pytest.mark.parametrize("kind", ["32 bits", "float", "signed"])
def test_what_is_refused_by_its_path_is_refused_when_it_is_open(kind, tmp_path):
    (path,) = write(tmp_path, REFUSED[kind]).images
    with pytest.raises(UnreadableImage):
        as_picture(path)
    for convert in (as_picture, of_an_export()):
        with Image.open(path) as image, pytest.raises(ValueError, match="mode [IF]"):
            convert(image)


@pytest.mark.parametrize("mode", ["LA", "RGBA", "RGBa", "PA", "CMYK", "YCbCr", "HSV", "1"])
def test_other_modes_are_what_pillow_makes_of_them(mode):
    image = Image.fromarray(COLOURS).convert("RGBA" if "a" in mode else "RGB")
    image = image.convert("LA").convert("PA") if mode == "PA" else image.convert(mode)
    assert np.array_equal(as_picture(image), image.convert("RGB"))


def test_the_lines_are_in_the_card_and_on_the_screen(tmp_path, capsys):
    weights = tmp_path / "net.pth"
    torch.save(encoder_of().backbone.state_dict(), weights)
    kwargs = "backbone.kwargs.channels=[8,8,16,16]"
    export(weights, "backbone.name=micro_resnet", kwargs, "size=16", f"out={tmp_path / 'out'}")
    (card,) = (tmp_path / "out").glob("*.json")
    lines = json.loads(card.read_text())["transform"]
    assert "\n".join(lines) in capsys.readouterr().out and len(lines) < 20
    assert not any("simco" in line for line in lines)
