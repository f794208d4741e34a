"""Hostile checkpoints: torch files and safetensors files."""

import io
import json
import struct
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save

from tests.hostile.hostile_file import HostileFile, RunsCode, raw, saved, small_state


def around(*keys: str, kind: type = dict) -> object:
    """A dict that contains itself after these keys."""
    outer = inner = kind()
    for key in keys[:-1]:
        inner[key] = kind()
        inner = inner[key]
    inner[keys[-1]] = outer
    return outer


def endless_list() -> list[object]:
    content: list[object] = [1]
    content.append(content)
    return content


def nested(depth: int) -> dict[str, object]:
    content: dict[str, object] = {}
    for _ in range(depth):
        content = {"model": content}
    return content


def with_weight(make: Callable[[], torch.Tensor]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls these kinds of tensors new or deprecated
            torch.save({**small_state(), "1.weight": make()}, path)

    return write


def quantised() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.zeros(10, 64), 0.1, 0, torch.qint8)


def ragged() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])


def packed_torch_file(path: Path) -> None:
    """A torch file whose records are compressed: 64 MiB of zeros in 64 kB."""
    plain = io.BytesIO()
    torch.save({"1.weight": torch.zeros(10, 64), "1.bias": torch.zeros(10)}, plain)
    records = zipfile.ZipFile(plain)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name in records.namelist():
            file.writestr(name, records.read(name) if "data/" not in name else bytes(2**25))


TORCH_FILES = {
    "a dict in itself": HostileFile("a.pt", saved(around("model"))),
    "a dict in itself under state_dict": HostileFile("a.pth", saved(around("state_dict", "model", "net"))),
    "an ordered dict in itself": HostileFile("a.pt", saved(around("net", kind=OrderedDict))),
    "a dict in itself, old format": HostileFile(
        "a.pt", lambda path: torch.save(around("model"), path, _use_new_zipfile_serialization=False)
    ),
    "a list in itself": HostileFile("a.pt", saved(endless_list())),
    "a list in itself under a name": HostileFile("a.pt", saved({"model": endless_list()})),
    "300 dicts in one another": HostileFile("a.pt", saved(nested(300))),
    "code": HostileFile("a.pt", saved(RunsCode())),
    "code under a name": HostileFile("a.pt", saved({**small_state(), "more": RunsCode()})),
    "a number": HostileFile("a.pt", saved(5)),
    "nothing": HostileFile("a.pt", saved(None)),
    "keys of numbers": HostileFile("a.pt", saved({1: torch.zeros(2), "a": torch.zeros(2)})),
    "a key of 1 MB": HostileFile("a.pt", saved({"k" * 10**6: torch.zeros(2)})),
    "keys with escape codes": HostileFile("a.pt", saved({"\x1b[2J\x1b]0;x\x07\nError": torch.zeros(2)})),
    "a sparse weight": HostileFile("a.pt", with_weight(torch.eye(64)[:10].to_sparse)),
    "a sparse weight by rows": HostileFile("a.pt", with_weight(torch.eye(64)[:10].to_sparse_csr)),
    "a weight without values": HostileFile("a.pt", with_weight(lambda: torch.zeros(10, 64, device="meta"))),
    "a quantised weight": HostileFile("a.pt", with_weight(quantised)),
    "a complex weight": HostileFile("a.pt", with_weight(lambda: torch.zeros(10, 64, dtype=torch.complex64))),
    "a weight of whole numbers": HostileFile("a.pt", with_weight(lambda: torch.zeros(10, 64, dtype=torch.int64))),
    "a weight of truth values": HostileFile("a.pt", with_weight(lambda: torch.zeros(10, 64, dtype=torch.bool))),
    "a ragged weight": HostileFile("a.pt", with_weight(ragged)),
    "NaN": HostileFile("a.pt", with_weight(lambda: torch.full((10, 64), torch.nan))),
    "one value shown 1e15 times": HostileFile("a.pt", with_weight(lambda: torch.zeros(1).expand(10**15))),
    "compressed records": HostileFile("a.pt", packed_torch_file),
    "a script": HostileFile("a.pt", raw(b"import os\nos.system('touch CODE_RAN')\n")),
    "zeros": HostileFile("a.pt", raw(bytes(100_000))),
    "a zip of nothing": HostileFile("a.pt", raw(b"PK\x05\x06" + bytes(18))),
    "a pickle of one byte": HostileFile("a.pt", raw(b"\x80")),
    "a pickle of 10 GB": HostileFile("a.pt", raw(b"\x80\x02\x8a\x05" + struct.pack("<q", 10**10)[:5] + b".")),
}  # fmt: skip


def safetensors_raw(header: object, data: bytes = b"") -> Callable[[Path], object]:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return raw(struct.pack("<Q", len(text)) + text + data)


def tensor_entry(**changed: object) -> dict[str, object]:
    return {"1.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changed}}


SAFETENSORS_FILES = {
    "a header of 2^63 bytes": HostileFile("a.safetensors", raw(struct.pack("<Q", 2**63) + b"{}")),
    "a header beyond the end": HostileFile("a.safetensors", raw(struct.pack("<Q", 500) + b"{}")),
    "a header of 200 MB": HostileFile("a.safetensors", raw(struct.pack("<Q", 2 * 10**8) + b"{}")),
    "a header that is a list": HostileFile("a.safetensors", safetensors_raw([])),
    "a header that is no JSON": HostileFile("a.safetensors", safetensors_raw(b"{,}")),
    "a header of 5000 brackets": HostileFile("a.safetensors", safetensors_raw(b"[" * 5000)),
    "a header not in UTF-8": HostileFile("a.safetensors", safetensors_raw(b'{"\xff": 1}')),
    "an unknown type": HostileFile("a.safetensors", safetensors_raw(tensor_entry(dtype="X9"), bytes(8))),
    "a shape of 1e18 values": HostileFile("a.safetensors", safetensors_raw(tensor_entry(shape=[10**18]), bytes(8))),
    "a shape that overflows": HostileFile(
        "a.safetensors", safetensors_raw(tensor_entry(shape=[2**63, 2**63]), bytes(8))
    ),
    "a negative shape": HostileFile("a.safetensors", safetensors_raw(tensor_entry(shape=[-2]), bytes(8))),
    "offsets beyond the end": HostileFile(
        "a.safetensors", safetensors_raw(tensor_entry(data_offsets=[0, 10**12], shape=[10**12 // 4]), bytes(8))
    ),
    "offsets backwards": HostileFile("a.safetensors", safetensors_raw(tensor_entry(data_offsets=[8, 0]), bytes(8))),
    "no tensors": HostileFile("a.safetensors", lambda path: path.write_bytes(save({}))),
    "a pickle": HostileFile("a.safetensors", saved(RunsCode())),
}  # fmt: skip
