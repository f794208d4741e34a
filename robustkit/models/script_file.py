"""Networks saved by `torch.jit.save`: their code is checked, and torch reads a copy of what was checked."""

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened

from .checkpoint import not_whole
from .script_code import check_script_classes, check_script_code

_TENSORS = ("data/", "constants/")
# torch reads these in C++, and knows only tensors, plain values and the classes of the code.
_PICKLES = ("data.pkl", "constants.pkl")
_MARKS = ("version", ".data/version", "byteorder")


def is_script(path: Path) -> bool:
    """Whether a file was written by `torch.jit.save`: an archive with code, unlike a checkpoint."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any("/code/" in name for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):  # names in it that are no text
        return False


class ScriptedNetwork(nn.Module):
    """A network in TorchScript, as a layer of Python: hooks can be put around it, and not inside."""

    def __init__(self, script: nn.Module) -> None:
        super().__init__()
        self.script = script

    def forward(self, x: Tensor) -> Any:
        """What the script returns."""
        return self.script(x)


def load_script(path: Path) -> ScriptedNetwork:
    """The network of a TorchScript file, on the CPU.

    Raises:
        UserError: the file is broken, or its code names an operator that may do more than compute.
    """
    try:
        copy = _checked_copy(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces that it will leave TorchScript behind
            return ScriptedNetwork(torch.jit.load(copy, map_location="cpu"))  # type: ignore[no-untyped-call]
    except UserError:
        raise
    except Exception as error:  # a broken file makes zipfile and torch raise almost anything
        raise not_whole(path, "TorchScript file", error) from error


def _checked_copy(path: Path) -> io.BytesIO:
    """The records that make the network, after their check: what torch reads is what was checked."""
    place, copy = shortened(path), io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as checked:
        budget = limits.CODE_BYTES
        for info in archive.infolist():
            name = info.filename.partition("/")[2]
            if name.startswith("code/") and name.endswith(".py"):
                content = _at_most(archive, info, budget, place)
                budget -= len(content)
                check_script_code(content.decode(), place)
            elif name in _PICKLES:
                content = _at_most(archive, info, limits.CODE_BYTES, place)
                check_script_classes(content, place)
            elif name.startswith(_TENSORS) or name in _MARKS:
                content = _at_most(archive, info, info.compress_size, place)
            else:
                continue
            checked.writestr(f"archive/{name}", content)
    copy.seek(0)
    return copy


def _at_most(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int, place: str) -> bytes:
    """The bytes of a record; torch packs code, and nothing else.

    Raises:
        UserError: there are more.
    """
    with archive.open(info) as record:
        content = record.read(size + 1)
    if len(content) > size:
        raise UserError(
            f"{place} is not a TorchScript file of torch: {shortened(info.filename)} has more than {size:,} bytes."
        )
    return content
