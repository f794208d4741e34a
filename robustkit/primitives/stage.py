"""One member of an ensemble, and which images it attacks."""

import math
from typing import Any, NamedTuple

from robustkit.primitives.measure import Measure
from robustkit.primitives.trust import backfires, bent


class Limits(NamedTuple):
    """Nearness ratios below which an image is attacked.

    Images are bent where following the gradient to where it predicts most obtains less than a quarter of it. The
    gradient backfires where more than half of it is lost.
    """

    below: float = math.inf
    if_bent: float = math.inf
    if_backfires: float | None = None  # None: as if bent

    def at(self, predicted: float, obtained: float) -> float:
        """The limit for an image, by what its gradient predicts and what following it obtains."""
        if self.if_backfires is not None and backfires(predicted, obtained):
            return self.if_backfires
        return self.if_bent if bent(predicted, obtained) else self.below

    def described(self) -> list[float]:
        """The limits, without one that is as if bent."""
        return [each for each in self if each is not None]


class Threshold(NamedTuple):
    """Which images a member attacks, of those whose nearness ratio was measured."""

    limits: Limits = Limits()
    close: float = 0.0  # images whose ratio at the clean image is below this have other limits
    if_close: Limits = Limits()
    far: float = math.inf  # images whose ratio at the clean image is this or more are left out

    def reaches(self, ratio: float, at_clean: float, predicted: float, obtained: float) -> bool:
        """Whether an image is attacked: by its ratios and by what following its gradient obtains.

        A ratio of 0 stands for a gradient that is not to be believed.
        """
        if ratio == 0:
            return True
        limits = self.if_close if at_clean < self.close else self.limits
        return at_clean < self.far and ratio < limits.at(predicted, obtained)

    def described(self) -> dict[str, Any]:
        """The limits that are set."""
        return {
            name: limit.described() if isinstance(limit, Limits) else limit
            for name, limit in self._asdict().items()
            if limit != self._field_defaults[name]
        }


class Stage(NamedTuple):
    """One member of an ensemble."""

    specification: str
    label: str  # names the member in tables
    threshold: Threshold = Threshold()
    measures: Measure | None = None  # what it measures on the images that it does not break
    for_noise: bool = True  # whether it is also run on randomized and smoothed models, where nothing is measured
    targets_at_least: int = 0  # aims at the likeliest classes, too, where fewer than these were measured as near
    all_if_replaced: bool = False  # attacks all images where gradients are replaced (--bpda, --straight-through)
