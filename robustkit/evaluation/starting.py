"""What ends workers before they are ready: one of the first images of the run, or something else."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from robustkit.evaluation.lanes import Opening, Trying

TRIES: Final = 3  # times that an image may end its worker
_MOST: Final = 20  # workers


class FirstImages:
    """Finds images that end workers which try the models on them.

    Args:
        failed: images that ended workers earlier.

    Attributes:
        opening: how the next worker tries the models.
    """

    def __init__(self, failed: Iterable[int]) -> None:
        self.opening = Opening(frozenset(failed))
        self._ended: Counter[Trying] = Counter()  # workers

    def try_singly(self, *, singly: bool) -> None:
        """Let the next workers try one image after the other, or all at once."""
        self.opening = replace(self.opening, singly=singly)

    def suspected(self, tried: Sequence[Trying]) -> Trying | None:
        """The model and the image at which a worker ended; None if it was no image.

        Nor was it one if two workers in a row ended at the first image that the model got: that was another each time.

        Args:
            tried: what the worker announced.
        """
        if not tried or tried[-1].image is None or self._ended.total() >= _MOST:
            return None
        model = tried[-1].model
        before = any(each.model == model for each in self._ended)
        return None if before and [each.model for each in tried].count(model) == 1 else tried[-1]

    def blame(self, at: Trying) -> bool:
        """Count a worker that ended at an image; returns whether the image is tried no more."""
        assert at.image is not None, "it is one image"
        self._ended[at] += 1
        if self._ended[at] < TRIES:
            self.opening = replace(self.opening, suspects=self.opening.suspects | {at.image})
            return False
        self.opening = replace(self.opening, avoided=self.opening.avoided | {at.image})
        return True
