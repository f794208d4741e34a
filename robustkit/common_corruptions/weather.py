"""Weather: snow, frost and fog."""

import numpy as np
from numpy.typing import NDArray

from .draws import Draws
from .filters import clouds, magnified, moved
from .ice import ice
from .parameters import Strength
from .pixels import cut, grey, rounded, unit

Picture = NDArray[np.uint8]


def snow(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Bright flakes that fall, and a whiter scene behind them."""
    mean, deviation, magnification, threshold, radius, sigma, kept = strength.values
    height, width, _ = image.shape
    flakes = magnified(mean + deviation * draws.normal(height, width, 1), max(magnification * strength.scale, 1.0))
    flakes = unit(cut(np.where(flakes < threshold, 0, flakes)))
    angle = float(draws.between(-135, -45))
    flakes = unit(rounded(moved(flakes, round(radius * strength.scale), sigma * strength.scale, angle)))
    x = unit(image)
    x = kept * x + (1 - kept) * np.maximum(x, grey(x) * 1.5 + 0.5)
    return cut(x + flakes + np.rot90(flakes, 2))


def frost(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Ice on the window, drawn by this package: the photographs of the published data are not ours to ship."""
    kept, weight = strength.values
    return cut(kept * unit(image) + weight * ice(draws, *image.shape))


def fog(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """A plasma fractal added, and the sum brought back into the picture's range."""
    weight, decay = strength.values
    height, width, _ = image.shape
    cloud = clouds(draws, 1 << (max(height, width, 2) - 1).bit_length(), decay)[:height, :width, None]
    x = unit(image)
    brightest = x.max()
    return cut((x + weight * cloud) * brightest / (brightest + weight))
