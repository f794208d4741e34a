"""A procedural texture of ice, in place of the photographs of frosted windows that the published data were made with.

Its colour, the brightness of whole crops and the contrast within them follow what was measured on those photographs.
"""

from typing import NamedTuple

import numpy as np

from .draws import Array, Draws
from .filters import clouds, sampled


class Window(NamedTuple):
    """What the crops of one photograph look like: mean of red, green and blue, and their standard deviation."""

    colour: tuple[float, float, float]
    contrast: float


# Measured on the five photographs; two of them are the same.
_WINDOWS = (
    Window((0.305, 0.585, 0.650), 0.06),
    Window((0.787, 0.805, 0.841), 0.08),
    Window((0.787, 0.805, 0.841), 0.08),
    Window((0.540, 0.599, 0.648), 0.11),
    Window((0.441, 0.484, 0.529), 0.15),
)
_DECAY = 1.25  # of the clouds: rough, as crystals are
_WARP = 0.06  # of the side, by which crystals bend
_EDGES = 0.5  # weight of the crystals' edges in the brightness
# Share of the standard deviation that is grain, which differs from pixel to pixel: chosen so that neighbouring pixels
# differ as much as on the photographs, which were made five times smaller for pictures of 32 pixels.
_GRAIN, _GRAIN_OF_SMALL, _SMALL = 0.45, 0.75, 85


def ice(draws: Draws, height: int, width: int, channels: int) -> Array:
    """`[H, W, C]` texture in [0, 1]: bright ridges between crystals on a cloudy ground, in the blue of ice."""
    window = _WINDOWS[int(draws.uniform() * len(_WINDOWS))]
    side = 1 << (max(height, width, 8) - 1).bit_length()
    ground, bend_down, bend_right = (clouds(draws, side, 1.5) for _ in range(3))
    ridges = 1 - 2 * np.abs(clouds(draws, side, _DECAY) - 0.5)
    places = np.arange(side, dtype=np.float64)
    reach = 2 * _WARP * side
    rows = places[:, None] + reach * (bend_down - 0.5)
    columns = places + reach * (bend_right - 0.5)
    crystals = sampled((ridges**3)[..., None], rows, columns, "mirror")[..., 0]
    surface = (1 - _EDGES) * _standard(ground) + _EDGES * _standard(crystals)
    grain = _GRAIN if min(height, width) >= _SMALL else _GRAIN_OF_SMALL
    surface = (1 - grain**2) ** 0.5 * _standard(surface[:height, :width]) + grain * draws.normal(height, width)
    colour = np.array(window.colour) if channels == 3 else np.array([np.dot(window.colour, (0.299, 0.587, 0.114))])
    return np.asarray((colour + window.contrast * surface[..., None]).clip(0, 1))


def _standard(values: Array) -> Array:
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-6))
