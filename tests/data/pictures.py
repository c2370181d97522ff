"""Small image files of every kind with their true pixels, and what the loaders make of them."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from simco_methods.data import ImageSet, PretrainData
from simco_methods.data.decode import FORMATS
from simco_methods.data.transforms import Preprocessing

SIDE = 16
SIZE = SIDE, SIDE
_random = np.random.default_rng(0)
PALETTE = _random.integers(0, 256, (8, 3), dtype=np.uint8)
INDEX = _random.integers(0, 8, SIZE, dtype=np.uint8)
COLOURS = PALETTE[INDEX]
GREY = np.arange(SIDE * SIDE, dtype=np.uint8).reshape(SIZE)
ALPHA = GREY.T[::-1].copy()
DEEP = (GREY.astype(np.uint16) << 8) | 0x5A  # 16 bits, of which 8 remain
DEEP_COLOURS = (COLOURS.astype(np.uint16) << 8) | 0x5A
BITS = _random.integers(0, 2, SIZE).astype(bool)


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def lying(image: Image.Image, kind: str, orientation: int = 6, **options) -> bytes:
    """A picture that its EXIF orientation (6: by a quarter to the right) says how to turn."""
    exif = Image.Exif()
    exif[274] = orientation
    return encoded(image, kind, exif=exif, **options)


def tags_last(content: bytes) -> bytes:
    """A PNG with its EXIF behind the pixels, where the standard allows it too."""
    start = content.index(b"eXIf") - 4
    end = start + 12 + struct.unpack(">I", content[start : start + 4])[0]
    return content[:start] + content[end:-12] + content[start:end] + content[-12:]


def _xmp(orientation: int) -> PngInfo:
    info = PngInfo()
    info.add_itxt("XML:com.adobe.xmp", f'<rdf:Description tiff:Orientation="{orientation}"/>')
    return info


def rgb() -> Image.Image:
    return Image.fromarray(COLOURS)


def _alpha(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(np.dstack([pixels, ALPHA]))


def _palette() -> Image.Image:
    image = Image.frombytes("P", SIZE, INDEX.tobytes())
    image.putpalette(PALETTE.tobytes())
    return image


def _frames() -> dict:
    return {"save_all": True, "append_images": [Image.new("RGB", SIZE, (1, 2, 3))] * 2}


def png(width: int, height: int, bits: int, colour: int, rows: bytes) -> bytes:
    """A PNG of any header and any rows."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff(pixels: bytes, bits: int, photometric: int, samples: int = 1, kind: int = 1) -> bytes:
    """Uncompressed and little-endian; of kind 1 for unsigned, 2 for signed, 3 for float."""
    tags = {256: SIDE, 257: SIDE, 258: bits, 259: 1, 262: photometric, 273: 8, 277: samples}
    tags |= {278: SIDE, 279: len(pixels), 339: kind}
    start = 8 + len(pixels)
    behind = start + 2 + 12 * len(tags) + 4  # one value a sample, if there are several
    content = b"II*\0" + struct.pack("<I", start) + pixels + struct.pack("<H", len(tags))
    for tag, value in tags.items():
        count = samples if tag in (258, 339) else 1
        value = behind + (tag == 339) * 2 * samples if count > 1 else value
        content += struct.pack("<HHII", tag, 4 if tag in (273, 279) else 3, count, value)
    return content + struct.pack(f"<I{2 * samples}H", 0, *[bits] * samples, *[kind] * samples)


def _twelve_bits() -> bytes:
    first, second = ((GREY.astype(np.uint16) << 4) | 0xA).reshape(-1, 2).T
    packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1)
    return packed.astype(np.uint8).tobytes()


def _flat(*values: int) -> np.ndarray:
    return np.full((*SIZE, len(values)), values, dtype=np.uint8)


_INK = 40, 90, 200, 50
_INKED = _flat(*(round((255 - ink) * (255 - _INK[3]) / 255) for ink in _INK[:3]))


def _inked() -> Image.Image:
    return Image.frombytes("CMYK", SIZE, _flat(*_INK).tobytes())


def _without_adobe(content: bytes) -> bytes:
    # JPEG's CMYK is inverted with Adobe's marker and, as all programs read it, without.
    start = content.index(b"\xff\xee")
    assert content[start + 4 : start + 9] == b"Adobe"
    return content[:start] + content[start + 2 + struct.unpack(">H", content[start + 2 :][:2])[0] :]


def _big_endian() -> Image.Image:
    return Image.frombytes("I;16B", SIZE, DEEP.astype(">u2").tobytes())


# A quarter to the left: what a camera that was held upright stores.
_LYING = Image.fromarray(np.rot90(COLOURS).copy())
_DEEP_LYING = Image.fromarray(np.rot90(DEEP).copy())
BLOCKS = _random.integers(30, 220, (2, 2, 3), dtype=np.uint8).repeat(8, axis=0).repeat(8, axis=1)
_GREY = np.repeat(GREY[..., None], 3, axis=-1)
_FLAT = _flat(200, 120, 40)
_JPEG = encoded(Image.fromarray(_FLAT), "JPEG", quality=95)
_REDDISH = Image.frombytes("LAB", SIZE, _flat(round(54.29 * 2.55), 81, 70).tobytes())  # sRGB's red

# Name: (file's ending, content, the true pixels, how far from them a codec may be).
RIGHT = {
    "jpeg": ("jpg", _JPEG, _FLAT, 3),
    "upper case": ("JPEG", _JPEG, _FLAT, 3),
    "grey jpeg": ("jpg", encoded(Image.new("L", SIZE, 77), "JPEG"), _flat(77, 77, 77), 1),
    "png": ("png", encoded(rgb(), "PNG"), COLOURS, 0),
    "png named jpg": ("jpg", encoded(rgb(), "PNG"), COLOURS, 0),
    "jpeg named png": ("png", _JPEG, _FLAT, 3),
    "bmp": ("bmp", encoded(rgb(), "BMP"), COLOURS, 0),
    "ppm": ("ppm", encoded(rgb(), "PPM"), COLOURS, 0),
    "gif": ("gif", encoded(_palette(), "GIF"), COLOURS, 0),
    "webp": ("webp", encoded(rgb(), "WEBP", lossless=True), COLOURS, 0),
    "tiff": ("tif", encoded(rgb(), "TIFF"), COLOURS, 0),
    "tiff lzw": ("tiff", encoded(rgb(), "TIFF", compression="tiff_lzw"), COLOURS, 0),
    "1 bit": (
        "png",
        encoded(Image.fromarray(BITS), "PNG"),
        BITS[..., None] * _flat(255, 255, 255),
        0,
    ),
    "grey": ("png", encoded(Image.fromarray(GREY), "PNG"), _GREY, 0),
    "grey and alpha": ("png", encoded(_alpha(GREY), "PNG"), _GREY, 0),
    "rgba": ("png", encoded(_alpha(COLOURS), "PNG"), COLOURS, 0),
    "rgba webp": ("webp", encoded(_alpha(COLOURS), "WEBP", lossless=True, exact=True), COLOURS, 0),
    "rgb with a transparent colour": (
        "png",
        encoded(rgb(), "PNG", transparency=tuple(PALETTE[0].tolist())),
        COLOURS,
        0,
    ),
    "palette": ("png", encoded(_palette(), "PNG"), COLOURS, 0),
    "palette, one transparent": ("png", encoded(_palette(), "PNG", transparency=3), COLOURS, 0),
    "palette with alpha": (
        "png",
        encoded(_palette(), "PNG", transparency=bytes(range(0, 240, 30))),
        COLOURS,
        0,
    ),
    "transparent gif": ("gif", encoded(_palette(), "GIF", transparency=3), COLOURS, 0),
    "animated gif": ("gif", encoded(_palette(), "GIF", **_frames()), COLOURS, 0),
    "animated webp": ("webp", encoded(rgb(), "WEBP", lossless=True, **_frames()), COLOURS, 0),
    "animated png": ("png", encoded(rgb(), "PNG", **_frames()), COLOURS, 0),
    "tiff of three pages": ("tif", encoded(rgb(), "TIFF", **_frames()), COLOURS, 0),
    "16 bits": ("png", encoded(Image.fromarray(DEEP), "PNG"), _GREY, 0),
    "16 bits pgm": ("pgm", b"P5 16 16 65535\n" + DEEP.astype(">u2").tobytes(), _GREY, 0),
    "16 bits tiff": ("tif", encoded(Image.fromarray(DEEP), "TIFF"), _GREY, 0),
    "16 bits big-endian": ("tif", encoded(_big_endian(), "TIFF"), _GREY, 0),
    "16 bits white is 0": ("tif", tiff((65535 - DEEP).tobytes(), 16, 0), _GREY, 0),
    "12 bits": ("tif", tiff(_twelve_bits(), 12, 1), _GREY, 0),
    "16 bits rgb": (
        "png",
        png(*SIZE, 16, 2, b"".join(b"\0" + row.tobytes() for row in DEEP_COLOURS.astype(">u2"))),
        COLOURS,
        0,
    ),
    "16 bits rgb tiff": ("tif", tiff(DEEP_COLOURS.tobytes(), 16, 2, samples=3), COLOURS, 0),
    "cmyk tiff": ("tif", encoded(_inked(), "TIFF"), _INKED, 1),
    "cmyk of adobe": ("jpg", encoded(_inked(), "JPEG", quality=95), _INKED, 3),
    "cmyk": ("jpg", _without_adobe(encoded(_inked(), "JPEG", quality=95)), _INKED, 3),
    "ycbcr": ("tif", encoded(rgb().convert("YCbCr"), "TIFF"), COLOURS, 3),
    "lab": ("tif", encoded(_REDDISH, "TIFF"), _flat(255, 0, 0), 6),
    "jfif": ("jfif", _JPEG, _FLAT, 3),
    "1 bit pbm": (
        "pbm",
        encoded(Image.fromarray(BITS), "PPM"),
        BITS[..., None] * _flat(255, 255, 255),
        0,
    ),
    "lying jpeg": (
        "jpg",
        lying(Image.fromarray(np.rot90(BLOCKS).copy()), "JPEG", quality=95, subsampling=0),
        BLOCKS,
        4,
    ),
    "lying png": ("png", lying(_LYING, "PNG"), COLOURS, 0),
    "lying png, tags last": ("png", tags_last(lying(_LYING, "PNG")), COLOURS, 0),
    "lying png by xmp": ("png", encoded(_LYING, "PNG", pnginfo=_xmp(6)), COLOURS, 0),
    "lying webp": ("webp", lying(_LYING, "WEBP", lossless=True), COLOURS, 0),
    "lying tiff": ("tif", lying(_LYING, "TIFF"), COLOURS, 0),
    "lying tiff lzw": ("tif", lying(_LYING, "TIFF", compression="tiff_lzw"), COLOURS, 0),
    "lying 16 bits": ("png", lying(_DEEP_LYING, "PNG"), _GREY, 0),
    "lying 16 bits tiff": ("tif", lying(_DEEP_LYING, "TIFF"), _GREY, 0),
    "lying palette": ("png", lying(_palette().transpose(2), "PNG"), COLOURS, 0),
    "broken exif": ("png", encoded(rgb(), "PNG", exif=b"Exif\0\0II*\0\xff\xff"), COLOURS, 0),
    "orientation 9": ("png", lying(rgb(), "PNG", 9), COLOURS, 0),
}
if "JPEG2000" in FORMATS:
    RIGHT |= {
        "jpeg 2000": ("jp2", encoded(rgb(), "JPEG2000"), COLOURS, 0),
        "jpeg 2000 without a box": ("J2K", encoded(rgb(), "JPEG2000", no_jp2=True), COLOURS, 0),
        "16 bits jpeg 2000": ("jp2", encoded(Image.fromarray(DEEP), "JPEG2000"), _GREY, 0),
    }
if "AVIF" in FORMATS:
    _BLOCKS_LYING = Image.fromarray(np.rot90(BLOCKS).copy())
    _FINE = {"quality": 100, "subsampling": "4:4:4"}
    RIGHT |= {
        "avif": ("avif", encoded(Image.fromarray(BLOCKS), "AVIF", **_FINE), BLOCKS, 4),
        "lying avif": ("avif", lying(_BLOCKS_LYING, "AVIF", **_FINE), BLOCKS, 4),
    }

_WHOLE = {
    "jpg": encoded(rgb(), "JPEG"),
    "png": encoded(rgb(), "PNG"),
    "gif": encoded(_palette(), "GIF"),
    "bmp": encoded(rgb(), "BMP"),
    "webp": encoded(rgb(), "WEBP"),
    "tif": encoded(rgb(), "TIFF"),
    "ppm": encoded(rgb(), "PPM"),
}
# Name: (file's ending, content, what is said of it).
REFUSED = {
    **{f"half a {end}": (end, file[: len(file) // 2], ".") for end, file in _WHOLE.items()},
    **{f"10 bytes of a {end}": (end, file[:10], ".") for end, file in _WHOLE.items()},
    "empty": ("png", b"", "it is empty"),
    "text": ("jpg", b"no image\n", "none of JPEG, PNG, .*, or its header is broken"),
    "zeros": ("jpg", bytes(1000), "or its header is broken"),
    "eps": ("jpg", encoded(rgb(), "EPS"), "none of JPEG, PNG"),
    "32 bits": (
        "tif",
        encoded(Image.new("I", SIZE, 9), "TIFF"),
        "signed or have 32 bits .mode I.;",
    ),
    "float": ("tif", encoded(Image.new("F", SIZE, 0.5), "TIFF"), "have 32 bits .mode F.; save it"),
    "float ppm": ("ppm", encoded(Image.new("F", SIZE, 0.5), "PPM"), "have 32 bits .mode F."),
    "signed": ("tif", tiff(DEEP.tobytes(), 16, 1, kind=2), "its pixels are signed"),
    "no rows": ("ppm", b"P6 0 5 255\n", "."),
    "bomb": ("png", png(20_000, 20_000, 1, 0, bytes(1000)), "400000000 pixels.* exceeds limit"),
}


def write(folder: Path, *kinds: tuple) -> ImageSet:
    """A set of files, one of each kind, with their numbers for labels."""
    folder.mkdir(exist_ok=True)
    paths = []
    for number, (ending, content, *_) in enumerate(kinds):
        paths.append(str(folder / f"{number}.{ending}"))
        Path(paths[-1]).write_bytes(content)
    labels = np.arange(len(kinds))
    return ImageSet(paths, labels, [str(number) for number in labels])


def whole_view(crop: int = SIDE) -> dict:
    """An augmentation that leaves images as they are, but for their size."""
    return {"crop_size": crop, "num_crops": 2, "rrc": {"enabled": False}}


def loaders(
    images: ImageSet, loader: str, batch_size: int | None = None, crop: int = SIDE, workers: int = 0
) -> PretrainData:
    """The data of a run on ``images``, with the same ones to validate on and no augmentation."""
    cfg = {
        "seed": 0,
        "data": {"dataset": "custom", "num_workers": workers, "loader": loader},
        "optimizer": {"batch_size": batch_size or len(images)},
        "augmentations": [whole_view(crop)],
    }
    return PretrainData(OmegaConf.create(cfg), images, images)


def trained_on(data: PretrainData) -> tuple[np.ndarray, list[int]]:
    """The first batch's pixels (B, S, S, 3) and labels, in the order of their places."""
    indices, views, labels = _first(data.train_dataloader())
    order = indices.argsort()
    return _pixels(data, views[0][order]), labels[order].tolist()


def validated_on(data: PretrainData) -> tuple[np.ndarray, list[int]]:
    """The first batch's pixels and labels."""
    pixels, labels = _first(data.val_dataloader())
    return _pixels(data, pixels), labels.tolist()


def _first(loader: Iterable) -> list:
    batches = iter(loader)
    try:
        return next(batches)
    finally:
        if hasattr(batches, "_shutdown_workers"):  # 5 s, if the garbage collector does so
            batches._shutdown_workers()


def _pixels(data: PretrainData, views: torch.Tensor) -> np.ndarray:
    to_image = Preprocessing.of("custom", data.cfg.augmentations[0]).inverse
    return np.stack([np.asarray(to_image(view)) for view in views])


def apart(found: np.ndarray, expected: np.ndarray | Sequence) -> int:
    """The largest difference of two pictures."""
    return int(np.abs(found.astype(int) - np.asarray(expected).astype(int)).max())
