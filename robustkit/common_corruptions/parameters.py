"""The published strengths of the 15 corruptions at five severities, for pictures of 32 and of 224 pixels.

Hendrycks & Dietterich 2019, arXiv:1903.12261; the numbers are those that CIFAR-10-C and ImageNet-C were made with.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

SEVERITIES: Final = (1, 2, 3, 4, 5)


class Strengths(NamedTuple):
    """The parameters of one corruption, one entry for each severity."""

    small: Sequence[Any]  # for pictures of 32 pixels
    large: Sequence[Any]  # for pictures of 224 pixels


# The order is the paper's, and the place of a corruption is part of its noise: it must not change.
STRENGTHS: Final = {
    # standard deviation
    "gaussian_noise": Strengths((0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38)),
    # photons of a white pixel
    "shot_noise": Strengths((500, 250, 100, 75, 50), (60, 25, 12, 5, 3)),
    # share of the values
    "impulse_noise": Strengths((0.01, 0.02, 0.03, 0.05, 0.07), (0.03, 0.06, 0.09, 0.17, 0.27)),
    # radius of the disk, standard deviation of its soft edge; pixels
    "defocus_blur": Strengths(
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    # standard deviation of the blur, longest shift; pixels; rounds
    "glass_blur": Strengths(
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    # half the length of the path, standard deviation along it; pixels
    "motion_blur": Strengths(
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    # end (left out) and step of the factors
    "zoom_blur": Strengths(
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    # mean and standard deviation of the flakes, their magnification and threshold, half the length and the standard
    # deviation of their path in pixels, weight of the picture
    "snow": Strengths(
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    # weights of the picture and of the ice
    "frost": Strengths(
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    # weight of the fog, and by how much each finer octave of it is weaker
    "fog": Strengths(
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    # added to the value of HSV
    "brightness": Strengths((0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5)),
    # factor
    "contrast": Strengths((0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)),
    # length and standard deviation of the shifts, largest move of the corners; shares of the side, which the code of
    # ImageNet-C took for 244
    "elastic_transform": Strengths(
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        tuple(
            tuple(share * 244 / 224 for share in shares)
            for shares in ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))
        ),
    ),
    # share of the side
    "pixelate": Strengths((0.95, 0.9, 0.85, 0.75, 0.65), (0.6, 0.5, 0.4, 0.3, 0.25)),
    # quality
    "jpeg_compression": Strengths((80, 65, 58, 50, 40), (25, 18, 15, 10, 7)),
}  # fmt: skip
NAMES: Final = tuple(STRENGTHS)

_SMALL, _LARGE = 32, 224  # sides that the numbers were published for


class Strength(NamedTuple):
    """The parameters of one corruption at one severity for one size of pictures."""

    values: Any
    scale: float  # factor of all lengths in pixels
    side: int  # the shorter side


def strength(name: str, severity: int, height: int, width: int) -> Strength:
    """The published parameters for the nearer of the two sizes, on a scale of ratios; lengths grow with the side.

    At 32 and 224 pixels they are the published ones. Below 32 pixels lengths stay as they are: blurs of CIFAR-10-C are
    about one pixel wide, and a fraction of a pixel would blur nothing.
    """
    side = min(height, width)
    if side * side < _SMALL * _LARGE:
        return Strength(STRENGTHS[name].small[severity - 1], max(side / _SMALL, 1.0), side)
    return Strength(STRENGTHS[name].large[severity - 1], side / _LARGE, side)
