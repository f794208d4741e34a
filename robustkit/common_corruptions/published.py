"""Published corrupted images, read as they are: CIFAR-10-C's arrays, ImageNet-C's pictures, MNIST-C's arrays.

The files are untrusted: arrays are mapped without Python objects, and their shape and type are checked first.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkit.data import Dataset, LazyData, pick
from robustkit.data.decoding import Decoder
from robustkit.data.picture_files import folders_in
from robustkit.data.pictures import decode, read_file
from robustkit.errors import UserError, unknown
from robustkit.limits import shortened

from .parameters import NAMES, SEVERITIES
from .suite import CorruptionLevel, Pictures, cells_of

_LABELS = "labels.npy"
_IMAGES_OF_MNIST, _LABELS_OF_MNIST = "test_images.npy", "test_labels.npy"
_RECOGNISED = 16  # images of each corruption by which a folder is recognised


def open_published(folder: Path, chosen: Sequence[str], data: Dataset) -> "ArraySuite | PictureSuite":
    """The corrupted versions of the images of `data` in a published folder.

    Args:
        folder: with `fog.npy` and `labels.npy`, or `fog/1` to `fog/5`, or `fog/test_images.npy`.
        chosen: names of corruptions; empty means the paper's 15, as far as they are there, or else all that are.
        data: the clean images, in the order of the arrays.

    Raises:
        UserError: the folder has none of these forms, a file is broken, or its images are not those of `data`.
    """
    if (folder / _LABELS).is_file():
        names = _chosen(chosen, sorted(file.stem for file in folder.glob("*.npy") if file.name != _LABELS), folder)
        files = {name: folder / f"{name}.npy" for name in names}
        _check_labels(folder / _LABELS, len(SEVERITIES), data)
        return ArraySuite.opened(folder, files, SEVERITIES, data)
    there = sorted(folders_in(folder)) if folder.is_dir() else []
    arrays = [name for name in there if (folder / name / _IMAGES_OF_MNIST).is_file()]
    if arrays:
        names = _chosen(chosen, arrays, folder)
        for name in names:
            _check_labels(folder / name / _LABELS_OF_MNIST, 1, data)
        return ArraySuite.opened(folder, {name: folder / name / _IMAGES_OF_MNIST for name in names}, (1,), data)
    pictures = [name for name in there if any((folder / name / str(severity)).is_dir() for severity in SEVERITIES)]
    if pictures:
        return PictureSuite.opened(folder, _chosen(chosen, pictures, folder), data)
    raise UserError(
        f"{shortened(folder)} is not a folder of corrupted images: it has neither {_LABELS} with fog.npy and others, "
        "as CIFAR-10-C, nor folders fog/1 to fog/5, as ImageNet-C; give the folder that contains them."
    )


@dataclass(frozen=True, eq=False)
class ArraySuite:
    """One array for each corruption, with all severities one after the other."""

    folder: Path
    arrays: dict[str, NDArray[np.uint8]]  # [severities * N, H, W, C], mapped from their files
    severities: tuple[int, ...]
    images: int  # N

    @classmethod
    def opened(cls, folder: Path, files: dict[str, Path], severities: tuple[int, ...], data: Dataset) -> "ArraySuite":
        """With every array checked.

        Raises:
            UserError: one is no array of as many images as the data set has, of their size.
        """
        channels, height, width = data.batch([0])[0].shape[1:]
        expected = (len(severities) * len(data), height, width, channels)
        arrays = {name: _images(file, expected, len(severities), data) for name, file in files.items()}
        return cls(folder, arrays, severities, len(data))

    @property
    def cells(self) -> tuple[CorruptionLevel, ...]:
        """In the order of the names."""
        return cells_of(tuple(self.arrays), self.severities)

    def described(self) -> dict[str, Any]:
        """With a hash of some images of each corruption."""
        ids = pick(self.images)[:_RECOGNISED]
        empty = torch.empty(0, device="cpu")
        return _described(self.folder, self.cells, lambda cell: self.pictures(cell, ids, empty).tobytes())

    def pictures(self, cell: CorruptionLevel, ids: Sequence[int], clean: Tensor) -> Pictures:
        """Read from the array."""
        first = self.severities.index(cell.severity) * self.images
        return np.array(self.arrays[cell.corruption][[first + number for number in ids]])


@dataclass(frozen=True, eq=False)
class PictureSuite:
    """One picture file for each image, in folders by corruption, severity and class, with the name of the clean one."""

    folder: Path
    names: tuple[str, ...]
    data: LazyData

    @classmethod
    def opened(cls, folder: Path, names: tuple[str, ...], data: Dataset) -> "PictureSuite":
        """With every folder looked for.

        Raises:
            UserError: a severity is missing, or the clean images are no picture files.
        """
        if not isinstance(data, LazyData) or data.files is None:
            raise UserError(
                f"The images in {shortened(folder)} are found by the file names of the clean ones, and {data.name} "
                "has none; give the folder of the clean images as the data set."
            )
        for name in names:
            missing = [str(each) for each in SEVERITIES if not (folder / name / str(each)).is_dir()]
            if missing:
                raise UserError(
                    f"{shortened(folder / name)} has no folder for severity {', '.join(missing)}; each corruption "
                    "needs 1 to 5."
                )
        return cls(folder, names, data)

    @property
    def cells(self) -> tuple[CorruptionLevel, ...]:
        """In the order of the names."""
        return cells_of(self.names, SEVERITIES)

    def described(self) -> dict[str, Any]:
        """With a hash of some files of each corruption."""
        ids = pick(len(self.data))[:_RECOGNISED]
        return _described(
            self.folder, self.cells, lambda cell: b"".join(read_file(self._file(cell, number)) for number in ids)
        )

    def pictures(self, cell: CorruptionLevel, ids: Sequence[int], clean: Tensor) -> Pictures:
        """Decoded from their files; one of another size is resized and cut like the clean ones."""
        files = tuple(self._file(cell, number) for number in ids)
        assert isinstance(self.data.items, Decoder)  # as all data of picture files
        reader = self.data.items.reader
        fitted = Decoder(files, (0,) * len(files), reader)
        plain = replace(fitted, reader=replace(reader, resize=None, crop=None))
        return np.stack([self._picture(plain, fitted, number) for number in range(len(files))])

    def _picture(self, plain: Decoder, fitted: Decoder, number: int) -> Pictures:
        image = decode(plain, number, str(plain.files[number]))
        if tuple(image.shape) != self.data.shape:
            image = decode(fitted, number, str(plain.files[number]))
        if tuple(image.shape) != self.data.shape:
            raise UserError(
                f"{shortened(plain.files[number])} has the shape {list(image.shape)}, but images of {self.data.name} "
                f"have {list(self.data.shape)}."
            )
        return image.mul(255).round().to(torch.uint8).permute(1, 2, 0).numpy()

    def _file(self, cell: CorruptionLevel, number: int) -> Path:
        assert self.data.files is not None
        clean = self.data.files[number]
        file = self.folder / cell.corruption / str(cell.severity) / clean.parent.name / clean.name
        if not file.is_file():
            raise UserError(
                f"There is no image {shortened(file)} for image {number} of {self.data.name}; copy it there, or use "
                "clean images that all have one."
            )
        return file


def _chosen(chosen: Sequence[str], there: Sequence[str], folder: Path) -> tuple[str, ...]:
    for name in chosen:
        if name not in there:
            raise unknown(f"corruption in {shortened(folder)}", name, there)
    if chosen:
        return tuple(dict.fromkeys(chosen))
    published = tuple(name for name in NAMES if name in there)
    if not there:
        raise UserError(f"{shortened(folder)} has labels and no corruptions; it needs fog.npy and others beside them.")
    return published or tuple(there)


def _described(folder: Path, cells: Sequence[CorruptionLevel], content: Any) -> dict[str, Any]:
    hashes: dict[str, Any] = {}
    for cell in cells:
        hashes.setdefault(cell.corruption, hashlib.sha256()).update(content(cell))
    return {
        "source": folder.resolve().name, "names": list(hashes), "severities": sorted({cell.severity for cell in cells}),
        "sha256": {name: digest.hexdigest() for name, digest in hashes.items()},
    }  # fmt: skip


def _check_labels(file: Path, severities: int, data: Dataset) -> None:
    """Check that the labels, once or once for each severity, are those of the data set."""
    labels = _mapped(file)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) not in (len(data), severities * len(data)):
        each = "" if severities == 1 else f", or {severities * len(data)} in {severities} severities"
        raise UserError(
            f"{shortened(file)} has the shape {list(labels.shape)} and the type {labels.dtype}, but {data.name} "
            f"{data.split} has {len(data)} images{each}: give the split that was corrupted, with all severities."
        )
    expected = data.labels.numpy()
    for start in range(0, len(labels), len(data)):
        different = np.flatnonzero(labels[start : start + len(data)].astype(np.int64) != expected)
        if len(different):
            raise UserError(
                f"{shortened(file)} has another label for image {int(different[0])} than {data.name} {data.split}; "
                "these are other images, or in another order."
            )


def _images(file: Path, expected: tuple[int, ...], severities: int, data: Dataset) -> NDArray[np.uint8]:
    array = _mapped(file)
    shape = (*array.shape, 1) if array.ndim == 3 and expected[3] == 1 else array.shape
    if array.dtype != np.uint8:
        raise UserError(f"{shortened(file)} has the type {array.dtype}; corrupted images are stored as uint8.")
    if shape != expected:
        held = f"{severities} severities of the {len(data)} images of {data.name} {data.split}"
        raise UserError(
            f"{shortened(file)} has the shape {list(array.shape)}, not {list(expected)}: it must hold {held}."
        )
    return array.reshape(expected)


def _mapped(file: Path) -> NDArray[Any]:
    """An array mapped from its file: nothing is read before it is asked for."""
    with _explained(file):
        if not file.is_file():
            raise UserError(f"There is no regular file {shortened(file)}; copy the whole published folder.")
        with file.open("rb") as opened:
            # Later versions may announce a header of 4 GB, which numpy reads before it checks it.
            if opened.read(7) != b"\x93NUMPY\x01":
                raise ValueError("no array of numpy's first format")
        return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # numpy raises almost anything for a broken header
        reason = shortened(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        raise UserError(f"{shortened(file)} is not a whole .npy file ({reason}); copy it again.") from None
