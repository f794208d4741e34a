"""Decode one picture file into a tensor. The file is untrusted: its kind and its size are checked before its pixels."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import numpy as np
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened

if TYPE_CHECKING:
    from PIL.Image import Image

# Pillow reads the kind from the content, not from the name, and has loaders that start other programs: EPS in a file
# called .png would run Ghostscript.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")
_SEVERAL = ("PNG", "TIFF", "WEBP")  # formats with several frames
_MOST = 65_535  # of 16 bits


@dataclass(frozen=True)
class PictureReader:
    """Reads pictures as RGB or gray.

    The short side is resized to `resize`, and a square of side `crop` is cut from the centre. Gray pictures of 16 bits
    are divided by 257; the transparency of a picture is left out.
    """

    resize: int | None = None
    crop: int | None = None
    mode: Literal["RGB", "L"] = "RGB"  # L: one channel, gray

    @property
    def gray(self) -> bool:
        """Whether pictures get one channel."""
        return self.mode == "L"

    def read(self, file: IO[bytes], place: str) -> Tensor:
        """The picture in an open file, `[C, H, W]` float32 in [0, 1]; `place` names it in errors."""
        from torchvision.transforms import functional

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, about its own limit, palettes and EXIF data
            picture = _opened(file, place)
            self._check_size(picture, place)
            _check_frames(picture, place)
            pixels = _eight_bits(picture, place).convert(self.mode)
            if self.resize is not None and self.crop is not None:
                pixels = functional.center_crop(functional.resize(pixels, self.resize), self.crop)
            image: Tensor = functional.to_tensor(pixels)
            return image

    def _check_size(self, picture: "Image", place: str) -> None:
        short, long = sorted(picture.size)
        size = f"{picture.size[0]}x{picture.size[1]}"
        if short * long > limits.PICTURE_PIXELS:
            raise UserError(
                f"{place} has {size} pixels; at most {limits.PICTURE_PIXELS:,} are decoded: scale it down or remove it."
            )
        if self.resize is not None and long * self.resize**2 > limits.PICTURE_PIXELS * short:
            raise UserError(f"{place} is too narrow to be resized ({size}); crop it first.")
        if self.resize is None and 3 * short * long > limits.IMAGE_VALUES:
            raise UserError(
                f"{place} has {size} pixels; a network gets at most {limits.IMAGE_VALUES // 3:,}: pass --image-size."
            )


def reader_of(image_size: int | None, gray: bool) -> PictureReader:
    """The reader of all pictures of a data set.

    Args:
        image_size: the short side is resized to it, and the centre is cut out; None leaves pictures as they are.
        gray: whether they get one channel.

    Raises:
        UserError: `image_size` is too large.
    """
    if image_size is not None:
        limits.require_at_most("image_size", image_size, limits.IMAGE_SIDE)
    return PictureReader(image_size, image_size, "L" if gray else "RGB")


@dataclass(frozen=True)
class Decoder:
    """The pictures in files with their labels."""

    files: tuple[Path, ...]
    labels: tuple[int, ...]
    reader: PictureReader

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        """The picture, `[C, H, W]` float32 in [0, 1], and its label."""
        path = self.files[number]
        with path.open("rb") as file:
            return self.reader.read(file, shortened(path)), self.labels[number]


def is_gray(path: Path) -> bool:
    """Whether a picture file has one channel, or that and transparency; reads only its header.

    Raises:
        UserError: it is no picture.
    """
    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mode = _opened(file, shortened(path)).mode
    return mode in ("1", "L", "LA", "La") or mode.startswith(("I", "F"))


def is_transparent(path: Path) -> bool:
    """Whether a picture that can be decoded has a pixel that is not opaque."""
    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        picture = _opened(file, shortened(path))
        if "A" not in picture.getbands() and "transparency" not in picture.info:
            return False
        opacity = np.asarray(picture.convert("RGBA").getchannel("A"))
    return bool((opacity < 255).any())


def _opened(file: IO[bytes], place: str) -> "Image":
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        raise UserError(
            f"{place} cannot be decoded: its format is none of {', '.join(FORMATS)}; replace or remove it."
        ) from None


def _check_frames(picture: "Image", place: str) -> None:
    # A JPEG counts as one picture, because phones add small copies of it.
    if picture.format in _SEVERAL and getattr(picture, "is_animated", False):
        raise UserError(f"{place} has several frames or pages; save one of them as an image.")


def _eight_bits(picture: "Image", place: str) -> "Image":
    """The picture with 8 bits per channel; Pillow's own conversion would make everything above 255 white."""
    if not picture.mode.startswith(("I", "F")):
        return picture
    values = np.asarray(picture)
    if values.dtype.kind == "f" or values.min() < 0 or values.max() > _MOST:
        raise UserError(f"{place} has more than 16 bits per pixel; save it with 8.")
    from PIL import Image

    return Image.fromarray((values / (_MOST / 255)).round().astype(np.uint8))
