"""How a randomized model is judged on draws: more and more of them until a class is significantly the most frequent.

One test per stage, after 32, 64, 128, ... draws. An image may be tested at many points, and each test may be wrong, so
the level of an image is divided: the k-th point gets its 1 / (k (k + 1)), which sums to 1 however many there are, and
each stage an equal part of that. The test itself is Cohen et al.'s PREDICT (`randomized_smoothing.predict`).
"""

from typing import Final

FIRST_STAGE: Final = 32  # draws that all agree decide at 5e-10, the level of an image's hundredth point


def stages(most: int) -> list[int]:
    """The numbers of draws after which a point is tested, `most` of them in the end."""
    sizes = [FIRST_STAGE]
    while 2 * sizes[-1] <= most:
        sizes.append(2 * sizes[-1])
    return sizes if sizes[-1] == most else [*sizes, most]


def spent(alpha: float, look: int) -> float:
    """The level of the test of an image's `look`-th point, counted from 1."""
    return alpha / (look * (look + 1))


def leads(first: int, second: int, deviations: float) -> bool:
    """Whether the votes of two classes differ by so many standard deviations of equally likely ones."""
    return (first - second) ** 2 >= deviations**2 * (first + second)
