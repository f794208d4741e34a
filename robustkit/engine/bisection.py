"""The nearest error by bisection, for attacks that need a radius: each image is attacked at one radius after another.

Radii lie on a grid of equal ratios over 16 octaves, so that near and far errors are found to the same relative
precision. Rows of one batch may be at different radii: all are queried together, and each is stepped by the attack of
its own radius.
Bad at: attacks that fail at a radius although they succeed at a smaller one; what is found may then be too far away.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache

from robustkit.primitives.protocol import Attack

_OCTAVES = 16  # down from the radius that holds every image: Linf to 1 / 65,536; the first radius is 1 / 256


@dataclass(frozen=True)
class Bisection:
    """The search for the nearest error of one image; levels are places in the grid of radii."""

    radii: tuple[float, ...]  # ascending
    low: int  # the largest level at which the attack failed; -1 before
    high: int  # the smallest level that holds an error; beyond the last one before

    @classmethod
    def of(cls, attack: Attack, values: int) -> "Bisection":
        """The search before the first radius, on an image of so many values."""
        radii = grid(attack.ball.norm, values, attack.radii)
        return cls(radii, -1, len(radii))

    @property
    def over(self) -> bool:
        """Whether no radius is left to be tried."""
        return self.high - self.low < 2

    @property
    def radius(self) -> float:
        """The next radius."""
        return self.radii[self._middle]

    def failed(self) -> "Bisection":
        """The search after no error was found at the radius."""
        return replace(self, low=self._middle)

    def found(self, distance: float) -> "Bisection":
        """The search after an error was found, which may be nearer than the radius."""
        level = bisect_left(self.radii, distance)
        # Not below a failure: that an error is there shows how far the attack can be trusted, and the search ends.
        return replace(self, high=max(self.low, min(level, self._middle)))

    @property
    def _middle(self) -> int:
        return (self.low + self.high) // 2


@cache
def grid(norm: str, values: int, rounds: int) -> tuple[float, ...]:
    """The radii that `rounds` halvings choose from: ratios are equal, or whole numbers in L0."""
    farthest = {"Linf": 1.0, "L2": values**0.5, "L1": float(values), "L0": float(values)}[norm]
    levels = 2**rounds
    radii = [farthest * 2 ** (_OCTAVES * (level / levels - 1)) for level in range(1, levels)]
    if norm != "L0":
        return tuple(radii)
    return tuple(sorted({float(int(radius)) for radius in radii} - {0.0})) or (1.0,)


def precision(rounds: int) -> float:
    """The ratio of two neighbouring radii, less 1."""
    return float(2 ** (_OCTAVES / 2**rounds) - 1)
