"""What a member of an ensemble measures on the images that it does not break."""

from typing import Any, NamedTuple

from robustkit.primitives.protocol import TrialCost


class Measure(NamedTuple):
    """The nearness ratio (`robustkit.engine.nearness`) at the best point that the member found."""

    classes: int  # to so many wrong classes, the likeliest
    clean_below: float = 0.0  # and, of images with a ratio below this, the ratio at the clean image
    unseen: bool = False  # and, in Linf, what values without a gradient do at the best point
    clean_gradient: bool = False  # and whether the gradient at the clean image can be believed
    random_step: bool = False  # and what a random step from there shows of it
    shorter_step: bool = False  # and a shorter one, where the gradient does not explain the first
    vanishing: bool = False  # a gradient that is next to zero counts as one that predicts nothing

    def described(self) -> dict[str, Any]:
        """What it measures, for the evidence; of runs that are older than `vanishing` too."""
        return {name: value for name, value in self._asdict().items() if name != "vanishing" or value}

    @property
    def cost(self) -> TrialCost:
        """The most passes for one image."""
        forwards, backwards = 2 + self.unseen, self.classes
        if self.clean_below > 0:
            forwards, backwards = forwards + 2, backwards + self.classes
        elif self.clean_gradient:
            forwards, backwards = forwards + 1, backwards + 1
        steps = self.random_step + (self.random_step and self.shorter_step)
        return TrialCost(forwards + 3 * self.clean_gradient + 2 * steps, backwards + steps)
