"""Some images of a data set, as a data set with its own numbers from 0."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .derived import DerivedImages


@dataclass(frozen=True, eq=False, repr=False)
class DatasetPart(DerivedImages):
    """The images `ids` of the data set `whole`, numbered from 0 in this order."""

    ids: tuple[int, ...]
    split_name: str = ""  # as in `whole` if empty

    @property
    def split(self) -> str:
        """Such as "val"."""
        return self.split_name or self.whole.split

    @property
    def labels(self) -> Tensor:
        """`[N]` int64."""
        return self.whole.labels[list(self.ids)]

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """These images and their labels."""
        return self.whole.batch([self.ids[number] for number in ids])

    def fingerprint(self, ids: Sequence[int]) -> str:
        """The fingerprint of the same images in `whole`."""
        return self.whole.fingerprint([self.ids[number] for number in ids])
