"""What a proof shows: how many images the model's own gradients miss and other attacks break."""

import math
from typing import NamedTuple

from robustkit.statistics.randomized_smoothing import lower_bound

_ALPHA = 0.05  # error rate of each bound
# Chosen on networks of bench/diagnose.py. Ordinary networks: other attacks break at most 2 more of 64 images; the
# mildest defense that misleads gradients: 7 more.
SHOWN = 0.05  # masking is shown if the lower bound of the missed images is above this share
EXCLUDED = 0.10  # and excluded if the upper bound is below this one


class Proof(NamedTuple):
    """The same images under several attacks; accuracies are shares of all of them."""

    clean: float
    attack_before: str
    before: float | None  # robust accuracy under the model's own gradients; None where the attack could not run
    attack_after: str  # empty without a remedy
    after: float | None  # robust accuracy under the attack with the remedy
    refusal: str  # why an attack could not run
    n: int
    attack_search: str = ""  # without gradients, on the images that the others left; empty if there was none
    missed: int = 0  # images that the model's own gradients do not break, and the remedy or the search does

    @property
    def worst(self) -> float:
        """Robust accuracy under all attacks together."""
        return (self.clean if self.before is None else self.before) - self.missed / self.n

    @property
    def gains_nothing(self) -> bool:
        """Whether the other attacks do no better than the model's own gradients, to within one image."""
        if self.before is None or self.missed > 1:
            return False
        return self.after is None or self.after > self.before - 1 / self.n

    @property
    def remedy_is_weaker(self) -> bool:
        """Whether the attack with the remedy alone leaves two images or more that the model's gradients break."""
        return self.before is not None and self.after is not None and self.n * (self.after - self.before) > 1.5

    @property
    def remedy_gains_nothing(self) -> bool:
        """Whether gradients break no more images with the remedy, and an attack without gradients does."""
        if self.before is None or self.after is None or self.attack_after.startswith("square"):
            return False
        return self.after >= self.before and self.attack_search != "" and self.missed > 0

    @property
    def least_missed(self) -> float:
        """Lower 95 % bound of the share of images that gradient attacks miss."""
        return lower_bound(self.missed, self.n, _ALPHA)

    @property
    def most_missed(self) -> float:
        """Upper 95 % bound of that share; 1 if no attack without gradients was tried."""
        return 1 - lower_bound(self.n - self.missed, self.n, _ALPHA) if self.attack_search else 1.0

    @property
    def shows_masking(self) -> bool:
        """Whether robust accuracy under gradient attacks is significantly too high."""
        return self.least_missed > SHOWN

    @property
    def excludes_masking(self) -> bool:
        """Whether it is too high by a few points at most."""
        return self.most_missed < EXCLUDED


# The smallest number of images of which all must agree to exclude masking.
ENOUGH = math.ceil(math.log(_ALPHA) / math.log(1 - EXCLUDED))
