"""Image files to RGB pictures, or to one error that names the file and says why not."""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image, UnidentifiedImageError

# By content, whatever the file's name says. Others are left alone: Pillow would start Ghostscript
# for an EPS file that is called a .jpg.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")

_QUIET = "ignore", None, Warning, re.compile(r"PIL\."), 0
_BITS, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0  # of TIFF


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


def read_rgb(path: str) -> Image.Image:
    """The picture in a file, as RGB.

    As torchvision's ``pil_loader`` does, it takes the first frame, leaves out alpha and
    transparency (the colours below them show) and does not turn the picture by its EXIF tags.
    Grey of 16 bits is scaled to 8 bits, which Pillow would clip.

    Raises:
        UnreadableImage: what is no whole image, by its path; more pixels than Pillow's limit (a
            decompression bomb); 32 bits a pixel and channel; what is no file, or may not be read.
    """
    with _opened(path) as image:
        said, picture = image.size, _as_rgb(image)
        if picture.size != said:
            raise ValueError(
                f"it is {picture.width} x {picture.height} pixels large, its header says "
                f"{said[0]} x {said[1]}; save it anew"
            )
        return picture


def read_size(path: str) -> tuple[int, int]:
    """Height and width of the picture in a file, from its header.

    Raises:
        UnreadableImage: see :func:`read_rgb`; a header alone may be whole.
    """
    with _opened(path) as image:
        return image.size[::-1]


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


def _as_rgb(image: Image.Image) -> Image.Image:
    # PNG and PGM have 16 bits at most: some versions of Pillow open those in its mode of 32.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(
            f"its pixels are signed or have 32 bits (mode {image.mode}); save it with 8 or 16 bits"
        )
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> np.ndarray:
    tags = getattr(image, "tag_v2", {})  # of TIFF, of which Pillow scales and inverts only 8 bits
    bits = tags.get(_BITS, (16,))[0]
    grey = (np.asarray(image) >> (bits - 8)).astype(np.uint8)
    return 255 - grey if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO else grey
