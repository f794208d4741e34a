"""The samples of one tar file: where its pictures are, with their labels.

The headers of a tar are read once, and no member is unpacked, so names cannot lead anywhere. Pickles and other members
are not opened.
"""

import io
import tarfile
from pathlib import Path
from typing import IO, NamedTuple

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened

from .picture_files import SUFFIXES as PICTURE_SUFFIXES

_LABEL = 32  # bytes of a .cls
_HEADER = 2**20  # bytes of one header of a tar, with the names in it


class TarMember(NamedTuple):
    """Where the bytes of a file in a tar are."""

    shard: Path
    name: str
    offset: int
    size: int


def samples_of(shard: Path) -> list[tuple[TarMember, int]]:
    """The pictures of a tar with their labels, in its order.

    Raises:
        UserError: it is broken or packed, or a sample is not whole.
    """
    pictures: dict[str, TarMember] = {}
    labels: dict[str, int] = {}
    try:
        with shard.open("rb") as raw, tarfile.open(fileobj=_Headers(raw), mode="r:") as archive:
            for info in archive:
                _note(info, shard, raw, pictures, labels)
            # Python takes a cut header for the end; a whole tar ends with empty blocks.
            raw.seek(archive.offset)
            if raw.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise ValueError("its end is missing")
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        if isinstance(error, UserError):
            raise
        reason = shortened(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        raise UserError(
            f"{shortened(shard)} is not a whole plain tar file ({reason}); unpack or copy it again."
        ) from None
    for have, lack, what in ((pictures, labels, "label (.cls)"), (labels, pictures, "image")):
        missing = next((key for key in have if key not in lack), None)
        if missing is not None:
            raise UserError(
                f"{shortened(missing)} in {shortened(shard)} has no {what}; a sample is KEY.jpg with KEY.cls, which "
                "holds the number of the class. Pickles are not read."
            )
    return [(picture, labels[key]) for key, picture in pictures.items()]


def _note(
    info: tarfile.TarInfo, shard: Path, raw: IO[bytes], pictures: dict[str, TarMember], labels: dict[str, int]
) -> None:
    """Keep where a picture is, or the number in a label; other members are passed over."""
    key, suffix = _split_name(info.name)
    if suffix != ".cls" and suffix not in PICTURE_SUFFIXES:
        return
    member = TarMember(shard, info.name, info.offset_data, info.size)
    place = place_of(member)
    parts = info.name.replace("\\", "/").split("/")
    if info.name.startswith(("/", "\\")) or ".." in parts:
        raise UserError(f"{place} points outside of the tar file; rename it.")
    if not info.isreg() or info.issparse():
        raise UserError(f"{place} is not a regular file; store the image itself.")
    most = _LABEL if suffix == ".cls" else limits.PICTURE_BYTES
    if info.size > most:
        raise UserError(f"{place} has {info.size:,} bytes; at most {most:,} are read.")
    if key in (labels if suffix == ".cls" else pictures):
        raise UserError(f"{place} appears twice, or there are two images with this key; give each sample its own key.")
    if suffix == ".cls":
        labels[key] = _label(raw, member)
    else:
        pictures[key] = member


def _label(raw: IO[bytes], member: TarMember) -> int:
    back = raw.tell()
    raw.seek(member.offset)
    text = raw.read(member.size).decode("ascii", "replace").strip()
    raw.seek(back)
    if not text.isdigit() or int(text) >= limits.CLASSES:
        raise UserError(
            f"{place_of(member)} holds {shortened(text)!r}; a label is a number from 0 to {limits.CLASSES - 1:,}."
        )
    return int(text)


def _split_name(name: str) -> tuple[str, str]:
    """The key of a sample and what follows it: "a/b.seg.png" is ".seg.png" of "a/b"."""
    folder, slash, file = name.rpartition("/")
    stem, dot, rest = file.partition(".")
    return f"{folder}{slash}{stem}", f"{dot}{rest}".lower()


def place_of(member: TarMember) -> str:
    """The name of a member and its tar, for errors."""
    return f"{shortened(member.name)} in {shortened(member.shard)}"


class _Headers(io.RawIOBase):
    """A file of which only headers are read: one that claims to be huge is refused before memory is taken."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _HEADER:
            raise ValueError(f"a header of {size:,} bytes")
        return self.file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()
