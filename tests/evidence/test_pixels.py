"""Floats come back to the last bit, and bytes that are no such floats are told."""

import zlib

import numpy as np
import pytest

from robustkit.evidence.pixels import packed, unpacked


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_every_bit_comes_back(kind):
    size = np.dtype(kind).itemsize
    bits = np.random.default_rng(0).integers(0, 256, size * 600, dtype=np.uint8).view(kind)
    floats = bits[np.isfinite(bits)][:480].reshape(3, 10, 16)
    back = unpacked(packed(floats), "3 10 16", kind)

    assert back is not None
    assert back.dtype == floats.dtype
    assert back.tobytes() == floats.tobytes()


GOOD = np.ones((1, 2, 2), np.float32)


@pytest.mark.parametrize(
    ("data", "shape", "kind"),
    [
        (b"", "1 2 2", "float32"), (b"x" * 40, "1 2 2", "float32"), (packed(GOOD)[:-1], "1 2 2", "float32"),
        (packed(GOOD) + b"x", "1 2 2", "float32"), (packed(GOOD), "1 2 3", "float32"), (packed(GOOD), "1 2", "float32"),
        (packed(GOOD), "1 2 2", "float64"), (packed(GOOD), "1 2 2", "int32"), (packed(GOOD), "-1 -2 2", "float32"),
        (packed(GOOD), "", "float32"), (packed(GOOD), "0 2 2", "float32"), (packed(GOOD), "9" * 9 + " 9", "float32"),
        (packed(GOOD * np.nan), "1 2 2", "float32"), (zlib.compress(bytes(10**7)), "1 2 2", "float32"),
    ],
)  # fmt: skip
def test_other_bytes_are_told(data, shape, kind):
    assert unpacked(data, shape, kind) is None
