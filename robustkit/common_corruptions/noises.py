"""Noise: Gaussian, shot and impulse noise, each value by itself."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from .draws import Array, Draws
from .parameters import Strength
from .pixels import cut, unit

Picture = NDArray[np.uint8]


def gaussian_noise(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Normal noise."""
    return cut(unit(image) + strength.values * draws.normal(*image.shape))


def shot_noise(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Counted photons: Poisson noise whose mean is the brightness times the photons of a white pixel."""
    photons = int(strength.values)
    cumulative = _poisson(photons)
    rows = cumulative.shape[1]
    level = image.astype(np.int64)
    # One search for all: the distribution of brightness v takes the numbers from 2v to 2v + 1.
    place = np.searchsorted(cumulative.ravel(), 2 * level + draws.uniform(*image.shape), side="right")
    return cut((place - level * rows) / photons)


def impulse_noise(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Salt and pepper: a share of all values becomes black or white."""
    changed, white = draws.uniform(*image.shape) < strength.values, draws.uniform(*image.shape) < 0.5
    return np.where(changed, np.where(white, 255, 0), image).astype(np.uint8)


@lru_cache(maxsize=16)
def _poisson(photons: int) -> Array:
    """`[256, n]`: for each brightness v the distribution function of its count, plus 2v."""
    means = np.arange(256)[:, None] / 255 * photons
    counts = np.arange(int(photons + 10 * np.sqrt(photons) + 20))
    # The last entry is 1 whatever is left above it, so that every number of [0, 1) lies below it.
    below = np.minimum(pdtr(counts[None, :], means), 1.0)
    below[:, -1] = 1.0
    return np.asarray(below + 2 * np.arange(256)[:, None])
