"""Some images of a data set, numbered anew."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .dataset import Dataset, UsualThreat


@dataclass(frozen=True, eq=False)
class DatasetPart:
    """The images `ids` of `whole` as a data set of their own."""

    whole: Dataset
    ids: tuple[int, ...]
    called: str = ""

    @property
    def name(self) -> str:
        """As the whole."""
        return self.whole.name

    @property
    def split(self) -> str:
        """As the whole, unless it is called otherwise."""
        return self.called or self.whole.split

    @property
    def class_names(self) -> tuple[str, ...]:
        """As the whole."""
        return self.whole.class_names

    @property
    def threats(self) -> tuple[UsualThreat, ...]:
        """As the whole."""
        return self.whole.threats

    @property
    def labels(self) -> Tensor:
        """`[N]` int64."""
        return self.whole.labels[list(self.ids)]

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and labels of these numbers."""
        return self.whole.batch([self.ids[number] for number in ids])

    def fingerprint(self, ids: Sequence[int]) -> str:
        """Of these images of the whole."""
        return self.whole.fingerprint([self.ids[number] for number in ids])
