"""Some images of a data set, as a data set with its own numbers from 0."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .dataset import Dataset, NumberedImages, UsualThreat


@dataclass(frozen=True, eq=False, repr=False)
class DatasetPart(NumberedImages):
    """The images `ids` of the data set `whole`, numbered from 0 in this order."""

    whole: Dataset
    ids: tuple[int, ...]
    split_name: str = ""  # as in `whole` if empty

    @property
    def name(self) -> str:
        """As in `whole`."""
        return self.whole.name

    @property
    def split(self) -> str:
        """Such as "val"."""
        return self.split_name or self.whole.split

    @property
    def class_names(self) -> tuple[str, ...]:
        """As in `whole`."""
        return self.whole.class_names

    @property
    def threats(self) -> tuple[UsualThreat, ...]:
        """As in `whole`."""
        return self.whole.threats

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
