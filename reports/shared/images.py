"""Arrays as PNG images inside a page."""

import base64
import io

import numpy as np
from numpy.typing import NDArray


def png(image: NDArray[np.float64]) -> str:
    """A data URI of a `[C, H, W]` image in [0, 1]; unless it has one or three channels, their mean is shown."""
    from PIL import Image

    pixels = np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)
    if len(pixels) == 3:
        picture = Image.fromarray(np.ascontiguousarray(np.moveaxis(pixels, 0, -1)))
    else:
        picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.mean(0).round().astype(np.uint8))
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def amplified(delta: NDArray[np.float64]) -> NDArray[np.float64]:
    """A difference as an image: 0.5 where nothing changed, 0 and 1 for the largest change."""
    largest = float(np.abs(delta).max())
    return 0.5 + delta / (2 * largest) if largest else np.full_like(delta, 0.5)
