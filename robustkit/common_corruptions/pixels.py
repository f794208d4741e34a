"""Between 8-bit pixels and numbers in [0, 1]."""

import numpy as np
from numpy.typing import NDArray

from .draws import Array


def unit(image: NDArray[np.uint8]) -> Array:
    """The picture in [0, 1]."""
    return image / 255.0


def cut(image: Array) -> NDArray[np.uint8]:
    """8 bits of a picture in [0, 1], with what follows the point cut off, as the published pictures were stored."""
    return np.asarray((image.clip(0, 1) * 255).astype(np.uint8))


def rounded(image: Array) -> NDArray[np.uint8]:
    """8 bits of a picture in [0, 1], rounded to the nearest value, as libraries for pictures store it."""
    return np.asarray(np.rint(image.clip(0, 1) * 255).astype(np.uint8))


def grey(image: Array) -> Array:
    """`[H, W, 1]` brightness, with the weights of ITU-R BT.601."""
    return image if image.shape[2] == 1 else np.asarray(image @ np.array([0.299, 0.587, 0.114]))[..., None]
