"""Hostile data sets in one file, `.npz` and `.safetensors`."""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from tests.hostile.checkpoints import SAFETENSORS_FILES
from tests.hostile.hostile_file import HostileFile, RunsCode, raw, saved


def npz(**arrays: object) -> Callable[[Path], object]:
    return lambda path: np.savez(path, **arrays)


def images(count: int = 4) -> np.ndarray:
    return np.zeros((count, 1, 8, 8), np.float32)


def labels(*values: int) -> np.ndarray:
    return np.array(values or (0, 1, 2, 3))


def npy_header(shape: object, descr: object = "<f4") -> bytes:
    """The start of an `.npy` file that claims this shape."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def zip_with(members: dict[str, bytes]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in members.items():
                file.writestr(f"{name}.npy", content)

    return write


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def claimed(shape: object, descr: object = "<f4") -> Callable[[Path], object]:
    """An archive whose `x` claims a shape and holds 1 kB."""
    return zip_with({"x": npy_header(shape, descr) + bytes(1000), "y": npy(labels())})


def deflated_zeros(size: int) -> bytes:
    """That many zeros as one deflate stream, made out of copies of a block of 16 MiB."""
    block = 2**24
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(bytes(block)) + packer.flush(zlib.Z_FULL_FLUSH)
    rest = zlib.compressobj(9, zlib.DEFLATED, -15)
    return first * (size // block) + rest.compress(bytes(size % block)) + rest.flush()


def npz_bomb(path: Path, count: int = 900_000) -> None:
    """3.5 GiB of zeros as images of 64 x 64 in 4 MB: the sizes and the header are right."""
    head = npy_header((count, 1, 64, 64), "|u1")
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH) + deflated_zeros(count * 4096)
    label = npy(np.zeros(count, np.uint8))
    parts, directory = [], b""
    for name, content, size in ((b"x.npy", body, len(head) + count * 4096), (b"y.npy", label, len(label))):
        method, crc = (8, 0) if name == b"x.npy" else (0, zlib.crc32(content))
        common = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 33, crc, len(content), size, len(name), 0)
        offset = sum(map(len, parts))
        parts.append(b"PK\x03\x04" + common + name + content)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, offset) + name
    start = sum(map(len, parts))
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 2, 2, len(directory), start, 0)
    path.write_bytes(b"".join(parts) + directory + end)


def encrypted(path: Path) -> None:
    npz(x=images(), y=labels())(path)
    content = bytearray(path.read_bytes())
    for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(sign)
        while at >= 0:
            content[at + place] |= 1
            at = content.find(sign, at + 1)
    path.write_bytes(content)


def odd_method(path: Path) -> None:
    """Compressed by method 99."""
    npz(x=images(), y=labels())(path)
    content = bytearray(path.read_bytes())
    for sign, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = content.find(sign)
        while at >= 0:
            content[at + place] = 99
            at = content.find(sign, at + 1)
    path.write_bytes(content)


def safetensors_data(**tensors: torch.Tensor) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(save(tensors))


def sparse_file(path: Path) -> None:
    """A whole safetensors file of 400 GB, of which the disk holds one block."""
    count = 10**11
    header = {
        "x": {"dtype": "F32", "shape": [count // 64, 1, 8, 8], "data_offsets": [0, 4 * count]},
        "y": {"dtype": "I64", "shape": [1], "data_offsets": [4 * count, 4 * count + 8]},
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 4 * count + 8)


def doubled_names(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x", npy(images()))
        file.writestr("y", "no array")


NPZ = "a.npz"
_F8 = torch.zeros(4, 1, 8, 8).to(torch.float8_e4m3fn)
ARRAY_FILES = {
    "a bomb of 3.5 GiB": HostileFile(NPZ, npz_bomb),
    "a bomb of 200 MiB": HostileFile(NPZ, lambda path: npz_bomb(path, 50_000)),
    **{f"a claimed shape {shape}"[:60]: HostileFile(NPZ, claimed(shape)) for shape in
       [(10**9, 3, 224, 224), (10**18,), (2**62, 2**62), (-1, 1, 8, 8), (4, 1, 8, 8, 8), "abc", (4.5, 1, 8, 8), None,
        (True, 1, 8, 8), (), (0,), (4, 1, 0, 8), (10**400, 1, 1, 1)]},
    **{f"a claimed type {descr}"[:60]: HostileFile(NPZ, claimed((4, 1, 8, 8), descr)) for descr in
       ["|O", "<f99", "", 5, None, [("a", "<f4")], "<M8[s]", "|V4", "<c8", "<U1", "|S0", "f4" * 5000]},
    "a header of 60 kB of brackets": HostileFile(
        NPZ, zip_with({"x": b"\x93NUMPY\x01\x00" + struct.pack("<H", 60_000) + b"(" * 60_000, "y": npy(labels())})
    ),
    "a header of 4 GB": HostileFile(
        NPZ, zip_with({"x": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{", "y": npy(labels())})
    ),
    "members that are no arrays": HostileFile(NPZ, zip_with({"x": b"hello", "y": b""})),
    "a member that is no array": HostileFile(NPZ, doubled_names),
    "encrypted": HostileFile(NPZ, encrypted),
    "an unknown compression": HostileFile(NPZ, odd_method),
    "Python objects": HostileFile(NPZ, npz(x=np.array([RunsCode()], dtype=object), y=labels(0))),
    "objects as labels": HostileFile(NPZ, npz(x=images(), y=np.array([RunsCode()] * 4, dtype=object))),
    "objects as class names": HostileFile(
        NPZ, npz(x=images(), y=labels(), class_names=np.array([RunsCode()] * 4, dtype=object))
    ),
    "class names of numbers in squares": HostileFile(NPZ, npz(x=images(), y=labels(), class_names=np.eye(4))),
    "one class name": HostileFile(NPZ, npz(x=images(), y=labels(), class_names=np.array("a"))),
    "class names of 1 MB": HostileFile(NPZ, npz(x=images(), y=labels(), class_names=np.array(["n" * 10**6] * 4))),
    "labels of 3e8": HostileFile(NPZ, npz(x=images(), y=labels(0, 1, 2, 3 * 10**8))),
    "labels of 2^63": HostileFile(NPZ, npz(x=images(), y=np.array([0, 1, 2, 2**63], np.uint64))),
    "labels of 2^63 - 1": HostileFile(NPZ, npz(x=images(), y=labels(0, 1, 2, 2**63 - 1))),
    "complex images": HostileFile(NPZ, npz(x=images().astype(np.complex64), y=labels())),
    "long double images": HostileFile(NPZ, npz(x=images().astype(np.longdouble), y=labels())),
    "dates as images": HostileFile(NPZ, npz(x=images().astype("M8[s]"), y=labels())),
    "records as images": HostileFile(NPZ, npz(x=np.zeros((4, 1, 8, 8), [("a", "f4")]), y=labels())),
    "no images of 1e9 pixels": HostileFile(NPZ, npz(x=np.zeros((0, 3, 30000, 30000), np.float32), y=labels()[:0])),
    "labels alone": HostileFile(NPZ, npz(y=labels())),
    "a text": HostileFile(NPZ, raw(b"hello")),
    "a pickle": HostileFile(NPZ, saved(RunsCode())),
    "one array": HostileFile(NPZ, raw(npy(images()))),
    "empty": HostileFile(NPZ, raw(b"")),
    "float8 images": HostileFile("a.safetensors", safetensors_data(x=_F8, y=torch.arange(4))),
    "float8 labels": HostileFile(
        "a.safetensors", safetensors_data(x=torch.zeros(4, 1, 8, 8), y=torch.zeros(4).to(torch.float8_e5m2))
    ),
    "truth values as images": HostileFile(
        "a.safetensors", safetensors_data(x=torch.zeros(4, 1, 8, 8, dtype=torch.bool), y=torch.arange(4))
    ),
    "class names in safetensors": HostileFile(
        "a.safetensors", safetensors_data(x=torch.zeros(4, 1, 8, 8), y=torch.arange(4), class_names=torch.tensor(5))
    ),
    "400 GB that are not there": HostileFile("a.safetensors", sparse_file),
    **{f"safetensors: {name}": file for name, file in SAFETENSORS_FILES.items()},
}  # fmt: skip
