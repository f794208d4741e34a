"""What happens to digital pictures: brightness, contrast, elastic deformation, coarse pixels, compression."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .draws import Array, Draws
from .filters import sampled, smooth_field
from .parameters import Strength
from .pixels import cut, unit

Picture = NDArray[np.uint8]


def brightness(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """More of HSV's value, which is the largest channel: hue and saturation stay."""
    x = unit(image)
    value = x.max(2, keepdims=True)
    more = np.minimum(value + strength.values, 1)
    # Black has no hue: it becomes grey.
    return cut(np.where(value > 0, x * (more / np.where(value > 0, value, 1)), more))


def contrast(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """All pixels nearer to the mean of their channel."""
    x = unit(image)
    means = x.mean((0, 1), keepdims=True)
    return cut((x - means) * strength.values + means)


def elastic_transform(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Three corners moved at random, and every pixel shifted along a smooth random field."""
    length, sigma, move = (share * strength.side for share in strength.values)
    x, (height, width, _) = unit(image), image.shape
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    matrix = _affine(draws, height, width, move)
    there = np.stack([columns, rows, np.ones_like(rows)]).reshape(3, -1)
    source = np.linalg.inv(matrix)[:2] @ there
    x = sampled(x, source[1].reshape(height, width), source[0].reshape(height, width), "mirror")
    down, right = (length * smooth_field(draws, height, width, sigma) for _ in range(2))
    return cut(sampled(x, rows + down, columns + right, "reflect"))


def pixelate(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Made smaller and larger again, without interpolation."""
    from PIL import Image

    height, width, _ = image.shape
    small = (max(1, int(width * strength.values)), max(1, int(height * strength.values)))
    picture = _picture(image)
    return _pixels(picture.resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: Picture, strength: Strength, draws: Draws) -> Picture:
    """Saved as JPEG and read again."""
    from PIL import Image

    file = io.BytesIO()
    _picture(image).save(file, "JPEG", quality=strength.values)
    return _pixels(Image.open(file, formats=["JPEG"]))


def _affine(draws: Draws, height: int, width: int, move: float) -> Array:
    """The matrix `[3, 3]` on (x, y, 1) that moves three corners of a square in the centre by up to `move` pixels."""
    half, (middle_x, middle_y) = min(height, width) // 3, (width // 2, height // 2)
    before = np.array([
        [middle_x + half, middle_y + half], [middle_x + half, middle_y - half], [middle_x - half, middle_y - half],
    ], dtype=np.float64)  # fmt: skip
    after = before + draws.between(-move, move, (3, 2))
    corners = np.column_stack([before, np.ones(3)])
    # A picture of less than three pixels has no such square.
    solved = np.linalg.solve(corners, after) if half else np.eye(3)[:, :2]
    return np.column_stack([solved, [0, 0, 1]]).T


def _picture(image: Picture) -> Any:
    from PIL import Image

    return Image.fromarray(image[..., 0] if image.shape[2] == 1 else np.ascontiguousarray(image))


def _pixels(picture: Any) -> Picture:
    pixels = np.asarray(picture)
    return pixels[..., None] if pixels.ndim == 2 else pixels
