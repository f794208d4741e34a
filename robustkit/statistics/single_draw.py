"""The probability that one answer of a randomized model is right, from draws that neither attack nor verdict used."""

from collections.abc import Iterable
from typing import NamedTuple

from robustkit.statistics.intervals import Proportion, mean_of_shares


class FreshDraws(NamedTuple):
    """How many of a point's fresh draws are right, in two halves.

    An image may have been attacked more than once. The first half chooses its worst point, the second half is what is
    reported: the smallest of several measured numbers is too small on average, measured again it is not.
    """

    draws: int  # in each half
    selection: int
    estimation: int


def worst_point(points: Iterable[FreshDraws]) -> FreshDraws:
    """The point whose first half of draws has the fewest right ones; the first of several."""
    return min(points, key=lambda point: point.selection / point.draws)


def single_draw(images: Iterable[Iterable[FreshDraws]]) -> Proportion:
    """The mean over images of the probability that a single draw is right, with its 95 % interval.

    Args:
        images: the points of each image, at least one; the worst of them counts.
    """
    worst = [worst_point(points) for points in images]
    by_draws: dict[int, int] = {}
    for point in worst:
        by_draws[point.draws] = by_draws.get(point.draws, 0) + point.estimation
    # Sums of integers, so that the order of images changes no bit.
    return mean_of_shares(sum(right / draws for draws, right in sorted(by_draws.items())), len(worst))
