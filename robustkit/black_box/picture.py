"""Images as 8-bit PNG files: what a server is sent, and so what a verdict on it is about."""

import hashlib
import io
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from robustkit.errors import UserError

WHITE = 255
_MODES = {1: "L", 3: "RGB"}


class SentPicture(NamedTuple):
    """One image of 256 levels."""

    levels: NDArray[np.uint8]  # [C, H, W]

    @property
    def key(self) -> bytes:
        """SHA-256 of shape and levels: another release of zlib may pack the same picture otherwise."""
        digest = hashlib.sha256(repr(self.levels.shape).encode())
        digest.update(np.ascontiguousarray(self.levels).tobytes())
        return digest.digest()

    def png(self) -> bytes:
        """The picture as a file."""
        rows = self.levels[0] if len(self.levels) == 1 else self.levels.transpose(1, 2, 0)
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(rows), _MODES[len(self.levels)]).save(file, "PNG", compress_level=1)
        return file.getvalue()


def pictures_of(images: Tensor) -> list[SentPicture]:
    """Images `[B, C, H, W]` in [0, 1], each value at the nearest of the 256 levels.

    Raises:
        UserError: they are no pictures.
    """
    if images.dim() != 4 or images.shape[1] not in _MODES:
        raise UserError(
            f"A server gets images with 1 or 3 channels, [images, channels, height, width], not {list(images.shape)}."
        )
    if not bool(images.isfinite().all()):
        raise UserError("An image holds NaN or infinite values, which no image file can; it was not sent.")
    levels = (images.detach().cpu().double() * WHITE).round().clamp(0, WHITE).byte().numpy()
    return [SentPicture(each) for each in levels]
