"""The size of an array in a file, read from its header and refused there if it is too large."""

import io
import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened

_MAGIC = b"\x93NUMPY"
_HEADER = 10_000  # bytes; numpy's own limit, which it checks only after reading up to 4 GB
_FLOAT_BYTES = 4  # images become float32, whatever they are stored as


def check_size(shape: Sequence[int], itemsize: int, key: str, path: Path) -> None:
    """Refuse an array of this shape if it would take too much memory.

    Raises:
        UserError: it would.
    """
    if math.prod(shape) * itemsize > limits.ARRAY_BYTES:
        raise UserError(
            f"The array {shortened(key)} in {shortened(path)} has the shape {shortened(list(shape))}, more than "
            f"{limits.ARRAY_BYTES // limits.MIB:,} MiB; save fewer images, or use a folder of image files, which are "
            "read one by one."
        )


def check_member(archive: zipfile.ZipFile, key: str, path: Path) -> None:
    """Refuse an array of an open `.npz` archive that is too large, packed like a bomb, or no array at all.

    Raises:
        UserError: it is.
        ValueError: its header is broken.
    """
    name = key if key in archive.namelist() else f"{key}.npy"  # as numpy looks it up
    info = archive.getinfo(name)
    with archive.open(info) as member:
        start = member.read(12)
        if not start.startswith(_MAGIC):
            raise ValueError(f"{shortened(name)} in it is not an array")
        # Version 1 counts its header in two bytes, later ones in four.
        short = start[6] == 1
        length = struct.unpack("<H", start[8:10])[0] if short else struct.unpack("<I", start[8:12])[0]
        if length > _HEADER:
            raise ValueError(f"the header of {shortened(name)} has {length:,} bytes")
        content = io.BytesIO(start + member.read(length))
    version = np.lib.format.read_magic(content)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(content)
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"{shortened(name)} has the shape {shortened(shape)}")
    check_size(shape, max(dtype.itemsize, _FLOAT_BYTES), key, path)
    if info.file_size > limits.PACKED_BYTES and info.file_size > limits.PACKED * info.compress_size:
        raise UserError(
            f"The array {shortened(key)} in {shortened(path)} is compressed more than {limits.PACKED} times, more than "
            "images ever are; save it uncompressed, with numpy.savez."
        )
