"""Output that appears whole or not at all: it is written under another name and renamed at the end."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from PIL import Image

from robustkit.errors import UserError
from robustkit.host.files import PART
from robustkit.host.lock import claimed
from robustkit.limits import shortened
from robustkit.paths import user_path

from .eight_bits import Levels

_LETTERS = 60  # of a file name; in UTF-8 at most 240 bytes, and file systems allow 255 with the ending


@contextmanager
def new_output(out: Path) -> Iterator[Path]:
    """A path beside `out` that becomes `out` when the context ends without an exception, and is removed otherwise.

    Raises:
        UserError: `out` exists, another process makes it, or its folder cannot be written.
    """
    out = user_path(out)
    require_new(out)
    created = [folder for folder in out.parents if not folder.exists()]
    try:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=f".{out.name[:_LETTERS]}.", suffix=PART, dir=out.parent))
        except OSError as error:
            raise UserError(f"{shortened(out)} cannot be written ({error.strerror}); give another --out.") from None
        try:
            with claimed(out):
                part = work / "output"
                yield part
                require_new(out)
                os.rename(part, out)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except BaseException:
        for folder in created:
            with suppress(OSError):
                folder.rmdir()
        raise


def require_new(out: Path) -> None:
    """Refuse to write where something is.

    Raises:
        UserError: there is something.
    """
    if os.path.lexists(out):
        raise UserError(f"{shortened(out)} exists and is not replaced; give another --out, or move it away.")


def output_names(files: Sequence[Path]) -> list[str]:
    """For each picture a name without ending, all different also where case makes no difference."""
    taken: set[str] = set()
    return [_free_name(file, taken) for file in files]


def write_png(levels: Levels, path: Path) -> None:
    """Write a picture of one or three channels as PNG."""
    pixels = levels.astype(np.uint8)
    pixels = pixels[0] if len(pixels) == 1 else np.ascontiguousarray(np.moveaxis(pixels, 0, -1))
    Image.fromarray(pixels).save(path, format="PNG")


def _free_name(file: Path, taken: set[str]) -> str:
    plain = "".join(letter if letter.isprintable() and letter not in '<>:"/\\|?*' else "_" for letter in file.stem)
    stem = plain.strip(". ").lstrip("-")[:_LETTERS] or "picture"
    number, name = 1, stem
    # A comparison has a name of its own, which a picture could have too.
    while taken & {name.casefold(), f"{name}.comparison".casefold()}:
        number += 1
        name = f"{stem}-{number}"
    taken |= {name.casefold(), f"{name}.comparison".casefold()}
    return name
