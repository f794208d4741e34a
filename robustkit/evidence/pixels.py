"""Pixels as the bytes of a column: floats kept to the last bit, compressed, and checked when they are read."""

import math
import re
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.floating[Any]]

_SHAPE = re.compile(r"\d{1,9}( \d{1,9}){0,7}", re.ASCII)
_TYPES = {"float32": 4, "float64": 8}
_MOST = 2**28  # values of one image
# Smaller than with the bytes of all floats grouped by significance, but for uniform noise (bench/kept_sizes.py).
_LEVEL = 3


def packed(pixels: Pixels) -> bytes:
    """The floats compressed; the same bytes for the same floats."""
    return zlib.compress(np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder("<")).tobytes(), _LEVEL)


def unpacked(data: bytes, shape: str, kind: str) -> Pixels | None:
    """The floats of `packed`; None if they do not have this shape and type, or are not finite.

    Args:
        data: compressed; may come from anybody, so no more than the shape needs is ever unpacked.
        shape: whole numbers, as "3 32 32".
        kind: "float32" or "float64".
    """
    sides = [int(side) for side in shape.split()] if _SHAPE.fullmatch(shape) else []
    count, size = math.prod(sides), _TYPES.get(kind)
    if not sides or not 0 < count <= _MOST or size is None:
        return None
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data, count * size + 1)
    except zlib.error:
        return None
    if len(plain) != count * size or not unpacker.eof or unpacker.unused_data:
        return None
    pixels: Pixels = np.frombuffer(plain, f"<f{size}").reshape(sides)
    return pixels if np.isfinite(pixels).all() else None
