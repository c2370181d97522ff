"""Image files to RGB pictures, or to one error that names the file and says why not."""

from __future__ import annotations

import os
import re
import shlex
import stat
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError, features

# Pillow's formats of photographs, and how their files' names end. Others are left alone: Pillow
# would start Ghostscript for an EPS file that is called a .jpg.
ENDINGS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "PNG": (".png", ".apng"),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
    "JPEG2000": (".jp2", ".j2k", ".j2c", ".jpc", ".jpx", ".jpf"),
    "AVIF": (".avif", ".avifs"),
    "HEIF": (".heic", ".heif", ".hif"),
}
# What reads a format that not every installation can.
INSTALL = {
    "WEBP": "pip install -U pillow",
    "JPEG2000": "pip install -U pillow",
    "AVIF": "pip install -U pillow",
    "HEIF": "pip install pillow-heif",
}


def _readable_formats() -> tuple[str, ...]:
    there = features.get_supported()
    lacking = {
        name
        for name, codec in (("WEBP", "webp"), ("JPEG2000", "jpg_2000"), ("AVIF", "avif"))
        if codec not in there
    }
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        lacking.add("HEIF")
    else:
        register_heif_opener()
    return tuple(name for name in ENDINGS if name not in lacking)


# Those that can be read here: files by their content, whatever their names say.
FORMATS = _readable_formats()
EXTENSIONS = tuple(ending for name in FORMATS for ending in ENDINGS[name])

_QUIET = "ignore", None, Warning, re.compile(r"PIL\."), 0
_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _WHITE_IS_ZERO = 256, 257, 258, 262, 0  # of TIFF
_ORIENTATION = 274  # of EXIF
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = (5, 6, 7, 8)


class UnreadableImage(OSError):
    """An image that cannot be read or is refused: one line with its path and the reason.

    A DataLoader worker hands its error on as the traceback's text, of which the line is kept.

    Args:
        message: the line, or a traceback that ends with it.

    Attributes:
        why: the reason alone; empty for one that a worker handed on.
    """

    why = ""

    def __init__(self, message: str):
        above, _, line = message.rstrip("\n").rpartition("\n")
        super().__init__(line.partition(f"{type(self).__name__}: ")[2] if above else line)

    @classmethod
    def of(cls, path: str, why: str) -> UnreadableImage:
        """The error of the image at ``path``."""
        why = printable(" ".join(why.split()))
        error = cls(f"cannot read the image {printable(path)}: {why}")
        error.why = why
        return error


def printable(text: str | os.PathLike) -> str:
    """A path that a terminal can show: what is no character, or ends the line, is escaped."""
    text = os.fspath(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shell_word(path: str | os.PathLike) -> str:
    """A path as a shell takes it, for settings and commands that are printed to be pasted."""
    return shlex.quote(printable(path))


def read_rgb(path: str) -> Image.Image:
    """The picture in a file, as RGB of 8 bits and upright; see :func:`as_rgb`.

    Of several frames it is the first.

    Raises:
        UnreadableImage: what is no whole image, by its path; more pixels than Pillow's limit (a
            decompression bomb); 32 bits a pixel and channel; what is no file, or may not be read.
    """
    with _opened(path) as image:
        said, picture = image.size, as_rgb(image)
        if picture.size not in (said, said[::-1]):
            raise ValueError(
                f"it is {picture.width} x {picture.height} pixels large, its header says "
                f"{said[0]} x {said[1]}; save it anew"
            )
        return picture


def read_size(path: str) -> tuple[int, int]:
    """Height and width of the picture in a file when it is upright, from its header.

    Raises:
        UnreadableImage: see :func:`read_rgb`; a header alone may be whole.
    """
    with _opened(path) as image:
        width, height = image.size
        if image.format == "TIFF":  # some versions of Pillow have exchanged them already
            width, height = (image.tag_v2[tag] for tag in (_WIDTH, _HEIGHT))
        if image.format == "PNG" and _has_text_behind_pixels(image.fp):
            image.load()
        return (width, height) if _orientation(image) in _SIDEWAYS else (height, width)


@contextmanager
def _opened(path: str) -> Iterator[Image.Image]:
    _silence()
    try:
        # Opened here: by a path, Pillow maps some formats into memory, and a file that is cut
        # meanwhile would end the process.
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no file but a pipe, a socket or a device")
            with Image.open(file, formats=FORMATS) as image:
                yield image
    except Exception as error:  # Pillow's decoders raise many kinds
        raise UnreadableImage.of(path, _reason(error, path)) from error


def _without_waiting(path: str, flags: int) -> int:
    # Opening a named pipe waits for somebody to write into it.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _reason(error: Exception, path: str) -> str:
    if isinstance(error, UnidentifiedImageError):
        if not os.path.getsize(path):
            return "it is empty"
        return f"it is none of {', '.join(FORMATS)}, or its header is broken"
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        return "it is a link to a file that is not there"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _silence() -> None:
    # Pillow warns of pictures that it reads well: large ones, odd tags. Not by catch_warnings,
    # which threads must not use, and only where it is missing: every change of the filters makes
    # Python repeat the warnings that it has given once.
    if _QUIET not in warnings.filters:
        warnings.filterwarnings("ignore", module=r"PIL\.")


def as_rgb(image: Image.Image) -> Image.Image:
    """An opened Pillow image as RGB of 8 bits and upright: what every image becomes here.

    It is turned as its EXIF orientation says, where it has one, as by Pillow's ``exif_transpose``.
    Of 16-bit grey the upper 8 bits are taken, where Pillow's ``convert`` would clip. Alpha and
    transparency are left out (the colours below them show), as in torchvision's ``pil_loader``.

    Args:
        image: of any mode; it is loaded and else left as it is.

    Raises:
        ValueError: pixels that are signed or have 32 bits, whose range nobody knows.
    """
    _silence()
    image.load()  # by which Pillow turns TIFF itself
    turn = None if image.format == "TIFF" else _UPRIGHT.get(_orientation(image))
    # PNG and PGM have 16 bits at most: some versions of Pillow open those in its mode of 32.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        tags = getattr(image, "tag_v2", {})  # of TIFF, of which Pillow scales and inverts only 8
        grey = eight_bits(np.asarray(image), tags.get(_BITS, (16,))[0])
        image = Image.fromarray(255 - grey if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO else grey)
    elif image.mode in ("I", "F"):
        raise ValueError(
            f"its pixels are signed or have 32 bits (mode {image.mode}); save it with 8 or 16 bits"
        )
    picture = image.convert("RGB")
    if turn is not None:
        picture = picture.transpose(turn)
    picture.info = {}  # with the EXIF orientation in it, it would be turned once more
    return picture


def eight_bits(pixels: np.ndarray, bits: int = 16) -> np.ndarray:
    """The upper 8 bits of unsigned pixels of ``bits``, as uint8: 0 stays 0, white stays white."""
    return (pixels >> (bits - 8)).astype(np.uint8)


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, from 1 to 8; 1 where there is none that can be read."""
    try:
        # PNG's own method decodes the pixels to look for tags behind them.
        found = Image.Image.getexif(image).get(_ORIENTATION, 1)
    except Exception:  # Pillow's parsers raise many kinds of broken tags; the pixels are whole
        return 1
    return found if found in _UPRIGHT else 1


def _has_text_behind_pixels(file: BinaryIO) -> bool:
    """Whether a PNG, whose signature has 8 bytes, may have tags that its header does not show."""
    place, behind = file.tell(), False
    file.seek(8)
    try:
        while len(head := file.read(8)) == 8:
            length, kind = struct.unpack(">I4s", head)
            if behind and kind in (b"eXIf", b"iTXt", b"tEXt", b"zTXt"):
                return True
            behind |= kind == b"IDAT"
            file.seek(length + 4, os.SEEK_CUR)
        return False
    finally:
        file.seek(place)
