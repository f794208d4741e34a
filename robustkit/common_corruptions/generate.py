"""The 15 corruptions at five severities, made of any pictures with one or three channels.

Hendrycks & Dietterich 2019, arXiv:1903.12261. Ours differs: a picture's noise depends on the seed, its number, the
corruption and the severity alone, so neither order nor batch changes a pixel, and frost is drawn, not photographed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkit.errors import UserError, unknown

from .blurs import defocus_blur, glass_blur, motion_blur, zoom_blur
from .digital import brightness, contrast, elastic_transform, jpeg_compression, pixelate
from .draws import Draws, stream_keys
from .noises import gaussian_noise, impulse_noise, shot_noise
from .parameters import NAMES, SEVERITIES, Strength, strength
from .weather import fog, frost, snow

Picture = NDArray[np.uint8]

_MAKERS: Final[Mapping[str, Callable[[Picture, Strength, Draws], Picture]]] = {
    "gaussian_noise": gaussian_noise, "shot_noise": shot_noise, "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur, "glass_blur": glass_blur, "motion_blur": motion_blur, "zoom_blur": zoom_blur,
    "snow": snow, "frost": frost, "fog": fog, "brightness": brightness, "contrast": contrast,
    "elastic_transform": elastic_transform, "pixelate": pixelate, "jpeg_compression": jpeg_compression,
}  # fmt: skip


def corrupted(pictures: Picture, name: str, severity: int, seed: int, numbers: Sequence[int]) -> Picture:
    """Pictures `[N, H, W, C]` under one corruption, each by itself, so that no bit depends on the others."""
    chosen, maker = strength(name, severity, *pictures.shape[1:3]), _MAKERS[name]
    keys = stream_keys(seed, numbers, NAMES.index(name), severity)
    made = np.empty_like(pictures)
    for number, picture in enumerate(pictures):
        made[number] = maker(picture, chosen, Draws(keys[number : number + 1]))
    return made


def eight_bits(x: Tensor) -> Picture:
    """`[N, H, W, C]` pixels of images `[N, C, H, W]` in [0, 1], rounded."""
    pixels = x.detach().cpu().double().mul(255).round().clamp(0, 255).to(torch.uint8)
    return np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy())


def check_corruption(name: str, severity: int) -> None:
    """Check that there is such a corruption.

    Raises:
        UserError: there is none.
    """
    if name not in _MAKERS:
        raise unknown("corruption", name, NAMES)
    if severity not in SEVERITIES:
        raise UserError(f"A severity is 1, 2, 3, 4 or 5, not {severity!r}.")


def check_shape(shape: tuple[int, ...]) -> None:
    """Check that images `[C, H, W]` of this shape can be corrupted.

    Raises:
        UserError: they cannot.
    """
    if len(shape) != 3 or shape[0] not in (1, 3) or min(shape[1:]) < 4:
        raise UserError(
            f"Corruptions are for images of 1 or 3 channels and at least 4 x 4 pixels, [C, H, W], not {list(shape)}."
        )
