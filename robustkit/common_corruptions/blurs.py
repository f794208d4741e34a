"""Blurs: a lens out of focus, frosted glass, motion and zoom."""

import numpy as np
from numpy.typing import NDArray

from .draws import Draws
from .filters import convolved, disk, gaussian, magnified, moved
from .parameters import Strength
from .pixels import cut, rounded, unit

Picture = NDArray[np.uint8]


def defocus_blur(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Each point becomes a disk."""
    radius, edge = strength.values
    return cut(convolved(unit(image), disk(radius * strength.scale, edge * strength.scale)))


def glass_blur(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Each pixel takes the place of a random neighbour; blurred before and after.

    The paper exchanges the two pixels; in the code that made the data the second keeps its value, and so it does here.
    """
    sigma, shift, rounds = strength.values
    sigma, shift = sigma * strength.scale, max(1, round(shift * strength.scale))
    smooth = cut(gaussian(unit(image), sigma))
    height, width, channels = image.shape
    rows, columns = np.arange(height - shift, shift, -1), np.arange(width - shift, shift, -1)
    places = (rows[:, None] * width + columns).ravel().tolist()
    source = list(range(height * width))
    for _ in range(rounds):
        down, right = np.floor(draws.between(-shift, shift, (2, len(places)))).astype(int)
        # One after the other: a pixel may take what a neighbour has taken before.
        for place, away in zip(places, (down * width + right).tolist(), strict=True):
            source[place] = source[place + away]
    mixed = smooth.reshape(-1, channels)[source].reshape(image.shape)
    return cut(gaussian(unit(mixed), sigma))


def motion_blur(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """A camera that moves in a random direction within 45 degrees of the horizontal."""
    radius, sigma = strength.values
    angle = float(draws.between(-45, 45))
    return rounded(moved(unit(image), round(radius * strength.scale), sigma * strength.scale, angle))


def zoom_blur(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """A camera that moves towards the scene: the mean of the picture and of its enlarged centres."""
    end, step = strength.values
    factors = np.arange(1, end, step).tolist()
    x = unit(image)
    return cut((x + sum(magnified(x, factor) for factor in factors)) / (len(factors) + 1))
