"""A mask of each image of a data set, in the place of one for all."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor
from typing_extensions import Self

from robustkit.errors import UserError
from robustkit.primitives.mask import Mask


@dataclass(frozen=True)
class ImageMasks(Mask):
    """Which pixels of each image may change. The engine attacks the images of each mask under that mask."""

    each: Mapping[int, Mask] = field(compare=False, repr=False)  # by the number of the image

    @classmethod
    def of_all(cls, masks: Sequence[Mask], source: str) -> Self:
        """The masks of all images, in their order."""
        return cls.of_numbers(dict(enumerate(masks)), source)

    @classmethod
    def of_numbers(cls, masks: Mapping[int, Mask], source: str) -> Self:
        """The masks of images by their numbers."""
        digest = hashlib.sha256("\n".join(mask.label for mask in masks.values()).encode()).hexdigest()
        return cls(f"masks-{digest[:12]}", source, None, None, masks)

    @property
    def words(self) -> str:
        """How many, how large, and where they are from."""
        return f"one for each of {len(self.each):,} images, {self.source}"

    def of_image(self, number: int) -> Mask:
        """The mask of one image.

        Raises:
            UserError: there is none.
        """
        if number not in self.each:
            raise UserError(f"There is no mask of image {number}: the masks are of {len(self.each)} images.")
        return self.each[number]

    def distinct(self) -> Iterator[Mask]:
        """The masks, each once."""
        yield from dict.fromkeys(self.each.values())

    def check(self, shape: tuple[int, ...]) -> None:
        for mask in self.distinct():
            mask.check(shape)

    def inside(self, x: Tensor) -> Tensor:
        raise AssertionError("the masks of all images, where that of one is needed")

    def placed(self, whole: Tensor, values: Tensor) -> Tensor:
        raise AssertionError("the masks of all images, where that of one is needed")
