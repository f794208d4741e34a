"""What several corruptions are made of: blurs, magnification, interpolation, and clouds. Pictures are `[H, W, C]`."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage

from .draws import Array, Draws

_LARGE_KERNEL = 64  # values above which a Fourier transform is faster


def gaussian(image: Array, sigma: float) -> Array:
    """A Gaussian blur of each channel, borders repeated."""
    return np.asarray(ndimage.gaussian_filter(image, (sigma, sigma, 0), mode="nearest", truncate=4))


def disk(radius: float, edge: float) -> Array:
    """A disk that adds up to 1 with a soft edge of the standard deviation `edge`, without empty borders."""
    reach = 8 if radius <= 8 else int(np.ceil(radius))
    along = np.arange(-reach, reach + 1)
    flat = ((along[:, None] ** 2 + along[None, :] ** 2) <= radius**2).astype(np.float64)
    taps = np.exp(-(np.arange(-1.0, 2) ** 2 if radius <= 8 else np.arange(-2.0, 3) ** 2) / (2 * edge**2))
    kernel = flat / flat.sum()
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, taps / taps.sum(), axis=axis, mode="mirror")
    used = int(np.abs(along[kernel.max(0) > 1e-12]).max())
    return np.asarray(kernel[reach - used : reach + used + 1, reach - used : reach + used + 1])


def convolved(image: Array, kernel: Array) -> Array:
    """Each channel filtered with a symmetric kernel, borders mirrored."""
    if kernel.size < _LARGE_KERNEL:
        return np.asarray(ndimage.correlate(image, kernel[..., None], mode="mirror"))
    from scipy import signal  # takes a second, with which every evaluation would begin

    reach = len(kernel) // 2
    rows, columns = (_mirrored(length, reach) for length in image.shape[:2])
    return np.asarray(signal.fftconvolve(image[rows][:, columns], kernel[..., None], mode="valid", axes=(0, 1)))


def _mirrored(length: int, reach: int) -> NDArray[np.int64]:
    """Places from `-reach` to `length + reach`, mirrored at the first and the last one."""
    period = max(2 * (length - 1), 1)
    places = np.arange(-reach, length + reach) % period
    return np.minimum(places, period - places) if length > 1 else np.zeros_like(places)


def moved(image: Array, radius: int, sigma: float, angle: float) -> Array:
    """A picture that moves in one direction while it is taken, borders repeated.

    The path has `2 * radius + 1` points, with one half of a bell curve as weights, as in ImageMagick's motion blur.

    Args:
        image: `[H, W, C]`.
        radius: half the length of the path, in pixels.
        sigma: standard deviation of the weights along the path, in pixels.
        angle: of the path, in degrees.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    right = np.ceil(steps * np.cos(np.deg2rad(angle)) - 0.5).astype(int)
    down = np.ceil(steps * np.sin(np.deg2rad(angle)) - 0.5).astype(int)
    reach = len(steps)
    padded = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    out, (height, width) = np.zeros_like(image), image.shape[:2]
    for weight, x, y in zip(weights, right, down, strict=True):
        out += weight * padded[reach + y : reach + y + height, reach + x : reach + x + width]
    return out


def magnified(image: Array, factor: float) -> Array:
    """The centre of a picture, enlarged to its size by linear interpolation."""
    for axis in (0, 1):
        image = _magnified(image, factor, axis)
    return image


def _magnified(image: Array, factor: float, axis: int) -> Array:
    first, second, share = _places(image.shape[axis], factor)
    shape = [1, 1, 1]
    shape[axis] = -1
    share = share.reshape(shape)
    return np.take(image, first, axis) * (1 - share) + np.take(image, second, axis) * share


@lru_cache(maxsize=256)
def _places(length: int, factor: float) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """For each place of the enlarged centre, the two places that it lies between, and the share of the second."""
    kept = int(np.ceil(length / factor))
    enlarged = max(round(kept * factor), 1)
    start, skipped = (length - kept) // 2, (enlarged - length) // 2
    # The first and the last place of the centre are the first and the last one of what it is enlarged to.
    places = (np.arange(length) + skipped) * ((kept - 1) / max(enlarged - 1, 1))
    first = np.minimum(places.astype(np.int64), kept - 1)
    return start + first, start + np.minimum(first + 1, kept - 1), places - first


def sampled(image: Array, rows: Array, columns: Array, border: str) -> Array:
    """The picture at these places `[H, W]`, by linear interpolation."""
    channels = [
        ndimage.map_coordinates(image[..., channel], (rows, columns), order=1, mode=border)
        for channel in range(image.shape[2])
    ]
    return np.stack(channels, -1)


def smooth_field(draws: Draws, height: int, width: int, sigma: float) -> Array:
    """`[H, W]` numbers in (-1, 1), blurred with a Gaussian that is cut at three standard deviations, borders reflected.

    Reflected at its borders, a picture is a sum of cosines, and each keeps its form in the blur: so the time does not
    depend on sigma.
    """
    field = draws.between(-1, 1, (height, width))
    if sigma <= 0:
        return field
    gains = _gains(height, sigma)[:, None] * _gains(width, sigma)
    return np.asarray(fft.idctn(fft.dctn(field, norm="ortho") * gains, norm="ortho"))


@lru_cache(maxsize=64)
def _gains(length: int, sigma: float) -> Array:
    reach = np.arange(int(3 * sigma + 0.5) + 1)
    taps = np.exp(-(reach**2) / (2 * sigma**2)) * np.where(reach, 2, 1)
    waves = np.cos(np.pi * np.outer(np.arange(length) / length, reach))
    return np.asarray(waves @ taps / taps.sum())


def clouds(draws: Draws, side: int, decay: float) -> Array:
    """A plasma fractal `[side, side]` from 0 to 1: the diamond-square algorithm on a torus.

    Args:
        draws: its random numbers.
        side: a power of two.
        decay: by how much the displacement falls with each halving of the step; it enters with its square.
    """
    field: NDArray[Any] = np.zeros((side, side))
    numbers = draws.between(-1, 1, (side * side,))  # drawn at once: a call costs more than a few numbers
    used, step, amplitude = 1, side, 1.0
    while step > 1:
        half, count = step // 2, side // step
        away = amplitude * numbers[used : used + 3 * count * count].reshape(3, count, count)
        corners = field[::step, ::step]
        after, before = np.arange(1, count + 1) % count, np.arange(-1, count - 1) % count
        right, below = corners[:, after], corners[after]
        centres = (corners + right + below + right[after]) / 4 + away[0]
        field[half::step, half::step] = centres
        field[::step, half::step] = (corners + right + centres + centres[before]) / 4 + away[1]
        field[half::step, ::step] = (corners + below + centres + centres[:, before]) / 4 + away[2]
        used, step, amplitude = used + 3 * count * count, half, amplitude / decay**2
    field -= field.min()
    return np.asarray(field / max(field.max(), 1e-12))
