"""A given part of all images: only its pixels may change, within the ball of an ordinary norm.

A masked attack runs on the values inside the mask alone, as if they were the whole input. So every attack keeps to the
mask, with the steps, counts and random starts that suit the number of values; the engine puts the values back into the
image whenever the model is asked.
"""

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkit.errors import UserError
from robustkit.limits import shortened

_RECTANGLE = re.compile(r"patch:(\d{1,6}),(\d{1,6}),(\d{1,6}),(\d{1,6})", re.ASCII)
_LABEL = re.compile(r"masks?-[0-9a-f]{12}|patch(-\d{1,6}){4}", re.ASCII)
_SEPARATOR = "-in-"


class Rectangle(NamedTuple):
    """In pixels, from the upper left corner of the image."""

    row: int
    column: int
    height: int
    width: int

    @property
    def label(self) -> str:
        """That of a mask of these pixels in images of any size."""
        return "-".join(map(str, ("patch", *self)))


@dataclass(frozen=True)
class Mask:
    """Which pixels of an image may change; two masks are equal if their labels are."""

    label: str  # "patch-ROW-COLUMN-HEIGHT-WIDTH", or "mask-" and the beginning of a SHA-256 of size and pixels
    source: str = field(compare=False)  # where it is from, in words
    rectangle: Rectangle | None = field(compare=False)  # if it is one
    pixels: Tensor | None = field(compare=False, repr=False)  # [H, W] bool on the CPU; None: a rectangle of any image

    @classmethod
    def of(cls, given: "Mask | Tensor | NDArray[Any] | str", source: str = "given as an array") -> "Mask":
        """The mask that an array `[H, W]` of two values stands for, or the text "patch:ROW,COLUMN,HEIGHT,WIDTH".

        Args:
            given: in an array, what is not zero may change.
            source: where an array is from.

        Raises:
            UserError: it is neither; or no pixel may change.
        """
        if isinstance(given, Mask):
            return given
        if isinstance(given, str):
            return cls._of_text(given)
        array = mask_array(given)
        while array.ndim > 2 and len(array) == 1:
            array = array[0]
        if array.ndim != 2:
            raise UserError(
                f"A mask has height and width, not the shape {list(array.shape)}; give one [H, W] for all images, or "
                "[N, H, W] or [N, 1, H, W], one for each image of the data."
            )
        values = np.unique(array[array != 0])
        if len(values) > 1 or not all(0 < value < np.inf for value in values):
            raise UserError(
                "A mask has two values: 0 where a pixel stays, and one other, such as 1, where it may change; this one "
                f"has {'NaN or infinity' if not np.isfinite(array).all() else 'more values, or negative ones'}."
            )
        return cls._of_pixels(torch.from_numpy(array != 0), source)

    @classmethod
    def _of_text(cls, text: str) -> "Mask":
        parts = _RECTANGLE.fullmatch(text.strip())
        if parts is None:
            raise UserError(
                f"{shortened(text)!r} is not a mask; give an image or an .npy file that exists, or "
                "patch:ROW,COLUMN,HEIGHT,WIDTH."
            )
        rectangle = Rectangle(*map(int, parts.groups()))
        if not rectangle.height * rectangle.width:
            raise UserError(f"The mask {text.strip()} has no pixel that may change; give a height and a width.")
        return cls(rectangle.label, "given as a rectangle", rectangle, None)

    @classmethod
    def _of_pixels(cls, pixels: Tensor, source: str) -> "Mask":
        if not bool(pixels.any()):
            raise UserError(
                "The mask has no pixel that may change: it is 0 everywhere; set pixels that may change to 1."
            )
        size = f"{pixels.shape[0]}x{pixels.shape[1]} "
        digest = hashlib.sha256(size.encode() + np.packbits(pixels.numpy()).tobytes()).hexdigest()
        return cls(f"mask-{digest[:12]}", source, _rectangle(pixels), pixels)

    @cached_property
    def area(self) -> int:
        """How many pixels may change."""
        if self.pixels is not None:
            return int(self.pixels.sum())
        assert self.rectangle is not None
        return self.rectangle.height * self.rectangle.width

    @property
    def words(self) -> str:
        """Its size, and where it is from."""
        size = "" if self.pixels is None else f" of {self.pixels.shape[0]}x{self.pixels.shape[1]}"
        return f"{self.area:,}{size} pixels, {self.source}"

    def of_image(self, number: int) -> "Mask":
        """The mask of one image of a data set, by its number: the same for all."""
        return self

    def check(self, shape: tuple[int, ...]) -> None:
        """Check that images of a shape have this part.

        Raises:
            UserError: they do not.
        """
        if len(shape) < 2:
            raise UserError(f"A mask is a part of an image; inputs of shape {list(shape)} have no height and width.")
        height, width = shape[-2:]
        if self.pixels is not None and self.pixels.shape != (height, width):
            size = f"{self.pixels.shape[0]}x{self.pixels.shape[1]}"
            raise UserError(
                f"The mask has {size} pixels and the images have {height}x{width} ({self.source}); give one of their "
                "size."
            )
        if self.rectangle is not None:
            lowest = self.rectangle.row + self.rectangle.height
            rightmost = self.rectangle.column + self.rectangle.width
            if lowest > height or rightmost > width:
                raise UserError(
                    f"The mask ends at row {lowest} and column {rightmost}, and the images have {height}x{width} "
                    "pixels; give one that lies inside."
                )

    def inside(self, x: Tensor) -> Tensor:
        """The values that may change: `[B, ..., h, w]` of a rectangle, which keeps its geometry, else `[B, n]`."""
        if self.rectangle is not None:
            return x[(..., *_slices(self.rectangle))].contiguous()
        return x.flatten(1).index_select(1, _numbers(self, tuple(x.shape[1:]), x.device))

    def placed(self, whole: Tensor, values: Tensor) -> Tensor:
        """`[B, *S]` the images `whole` with these values inside."""
        if self.rectangle is None:
            numbers = _numbers(self, tuple(whole.shape[1:]), whole.device)
            return whole.flatten(1).index_copy(1, numbers, values).reshape(whole.shape)
        images = whole.clone()
        images[(..., *_slices(self.rectangle))] = values
        return images


def mask_array(given: Tensor | NDArray[Any]) -> NDArray[Any]:
    """The numbers or truth values of masks, of any type and layout.

    Raises:
        UserError: it is no array of numbers.
    """
    try:
        # numpy has no bfloat16, and torch has neither comparisons of uint16 nor negative strides: numpy compares.
        dense = given.detach().cpu().to_dense() if isinstance(given, Tensor) else given
        array = np.asarray(dense.float() if isinstance(dense, Tensor) and dense.is_floating_point() else dense)
    except (TypeError, ValueError, NotImplementedError):
        raise UserError("A mask is an array [H, W] of numbers or truth values; this cannot be read as one.") from None
    if array.dtype.kind not in "biuf":
        raise UserError(f"A mask is an array of numbers or truth values, not of {array.dtype}.")
    return array


def masked_name(norm: str, mask: Mask | None) -> str:
    """What evidence and reports call a norm under a mask: "Linf-in-mask-0123456789ab"."""
    return norm if mask is None else f"{norm}{_SEPARATOR}{mask.label}"


def unmasked(name: str) -> str:
    """The norm in a name that `masked_name` makes; other texts as they are."""
    norm, _, label = name.partition(_SEPARATOR)
    return norm if _LABEL.fullmatch(label) else name


def _rectangle(pixels: Tensor) -> Rectangle | None:
    """The rectangle that a mask is; None if it has another form."""
    rows, columns = (pixels.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
    found = Rectangle(rows[0], columns[0], rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1)
    return found if bool(pixels[_slices(found)].all()) else None


def _slices(part: Rectangle) -> tuple[slice, slice]:
    return slice(part.row, part.row + part.height), slice(part.column, part.column + part.width)


@lru_cache(maxsize=16)
def _numbers(mask: Mask, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Which of an image's values may change."""
    assert mask.pixels is not None
    return mask.pixels.expand(shape).flatten().nonzero().flatten().to(device)
