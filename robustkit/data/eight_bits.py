"""A data set whose images are pictures of 8 bits, because that is what a server can be sent."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .dataset import chunks, pixel_fingerprint
from .derived import DerivedImages

_WHITE = 255


@dataclass(frozen=True, eq=False, repr=False)
class EightBitImages(DerivedImages):
    """The images of another data set, each value at the nearest of 256 levels."""

    @property
    def split(self) -> str:
        """As in `whole`."""
        return self.whole.split

    @property
    def labels(self) -> Tensor:
        """`[N]` int64."""
        return self.whole.labels

    def __len__(self) -> int:
        return len(self.whole)

    def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """These images, rounded, and their labels."""
        x, y = self.whole.batch(ids)
        return _rounded(x), y

    def fingerprint(self, ids: Sequence[int]) -> str:
        """The fingerprint of the same images in `whole` where rounding changes none of them."""
        return pixel_fingerprint(self, ids) if self.changes(ids) else self.whole.fingerprint(ids)

    def changes(self, ids: Sequence[int]) -> bool:
        """Whether rounding changes one of these images."""
        return any(not torch.equal(x, _rounded(x)) for x in (self.whole.batch(chunk)[0] for chunk in chunks(ids)))


def _rounded(x: Tensor) -> Tensor:
    return ((x.double() * _WHITE).round() / _WHITE).float()
