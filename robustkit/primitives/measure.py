"""What a member of an ensemble measures on the images that it does not break."""

from typing import NamedTuple

from robustkit.primitives.protocol import TrialCost


class Measure(NamedTuple):
    """The nearness ratio (`robustkit.engine.nearness`) at the best point that the member found."""

    classes: int  # to so many wrong classes, the likeliest
    clean_below: float = 0.0  # and, of images with a ratio below this, the ratio at the clean image
    unseen: bool = False  # and what values without a gradient do, in Linf

    @property
    def cost(self) -> TrialCost:
        """The most passes for one image."""
        points = 2 if self.clean_below > 0 else 1
        return TrialCost(2 * points + self.unseen, self.classes * points)
