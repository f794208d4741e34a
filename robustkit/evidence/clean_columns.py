"""The clean images of one model as columns: a row as an object is made where somebody asks for it."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.image_set import ImageSet
from robustkit.evidence.rows import CleanRecord
from robustkit.evidence.store import Store
from robustkit.evidence.valid_rows import check_values

_NAMES = ("sample", "label", "pred")
_CHUNK = 1 << 12  # rows that are in memory as objects


class Labels(Mapping[int, int]):
    """A whole number of each of some images, ascending by image.

    Args:
        images: [n].
        values: [n].
    """

    def __init__(self, images: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        self.images, self.values_of_all = ImageSet(images), values

    def __getitem__(self, image: int) -> int:
        """The number of one image."""
        if image not in self.images:
            raise KeyError(image)
        return int(self.values_of_all[np.searchsorted(self.images.array, image)])

    def __iter__(self) -> Iterator[int]:
        """The images."""
        return iter(self.images)

    def __len__(self) -> int:
        """How many images."""
        return len(self.images)


class CleanColumns(Mapping[int, CleanRecord]):
    """Rows by image, without their rankings, which can be long.

    Args:
        model: its name.
        sample: [n] images, ascending.
        label: [n].
        pred: [n].
    """

    def __init__(
        self, model: str, sample: NDArray[np.int64], label: NDArray[np.int64], pred: NDArray[np.int64]
    ) -> None:
        self.model, self.sample, self.label, self.pred = model, sample, label, pred
        self.images = ImageSet(sample)

    @classmethod
    def of(cls, model: str, rows: Iterable[tuple[int, int, int]]) -> Self:
        """From image, label and prediction of each row."""
        return cls(model, *np.array(sorted(rows), np.int64).reshape(-1, 3).T.copy())

    @classmethod
    def read(cls, store: Store, model: str) -> Self:
        """Those of a store.

        Raises:
            UserError: a row cannot be one of ours.
        """
        query = f"SELECT {', '.join(_NAMES)} FROM clean WHERE model = ? ORDER BY sample"
        parts = [np.empty((3, 0), np.int64)]
        for rows in store.chunks(query, model, size=_CHUNK):
            check_values(CleanRecord, rows, store.folder, _NAMES)
            parts.append(np.array([*zip(*rows, strict=True)], np.int64))
        return cls(model, *np.concatenate(parts, axis=1))

    @property
    def is_right(self) -> NDArray[np.bool_]:
        """[n], whether each is classified correctly."""
        return np.equal(self.label, self.pred)

    @property
    def correct(self) -> ImageSet:
        """The images that are classified correctly."""
        return ImageSet(self.sample[self.is_right])

    @property
    def labels(self) -> Labels:
        """The label of each image."""
        return Labels(self.sample, self.label)

    def where(self, chosen: NDArray[np.bool_]) -> "CleanColumns":
        """Some of the rows.

        Args:
            chosen: [n].
        """
        return CleanColumns(self.model, self.sample[chosen], self.label[chosen], self.pred[chosen])

    def rows_of(self, attacked: AttackColumns) -> NDArray[np.int64]:
        """Of each image the number of its row among the attacked ones, -1 for none."""
        found = np.full(len(self), -1)
        found[np.searchsorted(self.sample, attacked.sample)] = np.arange(len(attacked))
        return found

    def __getitem__(self, image: int) -> CleanRecord:
        """The row of one image."""
        if image not in self.images:
            raise KeyError(image)
        place = int(np.searchsorted(self.sample, image))
        return CleanRecord(self.model, image, int(self.label[place]), int(self.pred[place]), "")

    def __iter__(self) -> Iterator[int]:
        """The images."""
        return iter(self.images)

    def __len__(self) -> int:
        """How many images."""
        return len(self.sample)
