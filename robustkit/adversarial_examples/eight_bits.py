"""Adversarial examples rounded to the 256 levels of a picture file, inside the ball.

Distances are those of the files: differences of whole levels, divided by 255, so they are exact.
"""

import math
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.ball import FREE
from robustkit.primitives.threat import ball, exact, is_minimum, is_rendered

Levels = NDArray[np.int64]  # [C, H, W] from 0 to 255

WHITE = 255
_STRETCHES = (1.05, 1.2, 1.5, 2.0)  # of a change to the nearest error
_NOISE = 1e-3  # levels that float32 may be off


def levels_of(picture: Tensor) -> Levels:
    """The levels of a picture that was decoded from 8 bits."""
    levels: Levels = np.rint(picture.double().numpy() * WHITE).astype(np.int64)
    return levels


def eps_of_levels(norm: str, eps: str) -> str:
    """The radius that an attack needs for pictures of 8 bits: the largest in Linf that is a whole number of levels.

    Between two levels an attack would use room that no picture can, and rounding would take its success away. Linf 0.1
    is 25.5 levels: both of six digits that PGD broke there were lost, and none of 45 of a hundred at 25.

    Raises:
        UserError: the ball holds no other picture than its centre.
    """
    if is_minimum(eps) or is_rendered(norm):
        return eps
    levels = _budget(norm, eps)
    if levels < 1:
        raise UserError(
            f"{norm} {eps} changes no value of an 8-bit image, whose steps are 1/255; choose a larger --eps, or "
            "--format safetensors, which keeps floats."
        )
    return f"{levels}/{WHITE}" if norm == "Linf" and Fraction(levels) / WHITE != exact(eps) else eps


def roundings(clean: Levels, x_adv: Tensor, norm: str, eps: str) -> list[Levels]:
    """Roundings of a float picture within the ball around `clean`, the nearest one first.

    Then come one that rounds as many values as the ball allows away from the clean picture, because that keeps most of
    the perturbation, and one that rounds all towards it; without a radius some that are farther away. For a threat that
    is no norm there is the nearest one alone.
    """
    if is_rendered(norm):
        return [levels_of(x_adv)]
    change = x_adv.double().numpy() * WHITE - clean
    size = np.abs(change)
    whole = np.floor(size)
    fraction = size - whole
    fraction[fraction < _NOISE] = 0
    sign = np.sign(change).astype(np.int64)
    towards = whole.astype(np.int64)
    tried = [towards + _raised(clean, sign, towards, fraction, least, norm, eps) for least in (0.5, _NOISE, math.inf)]
    if is_minimum(eps):
        # Without a radius, the nearest error may lie between the levels; a little farther away there are more.
        tried += [np.rint(stretch * size).astype(np.int64) for stretch in _STRETCHES]
    found: list[Levels] = []
    for steps in tried:
        levels = np.clip(clean + sign * steps, 0, WHITE)
        if not any(np.array_equal(levels, other) for other in found):
            found.append(levels)
    return found


def distance(clean: Levels, other: Levels, norm: str) -> float:
    """The distance of two pictures, pixels in [0, 1]; for L0 the number of values that differ.

    For a patch its side, for a frame its width.
    """
    if norm in FREE:
        return ball(norm, 0).distance(*(torch.from_numpy(each).unsqueeze(0) for each in (clean, other))).item()
    size = np.abs(other - clean)
    if norm == "L0":
        return float(np.count_nonzero(size))
    if norm == "L2":
        return math.sqrt(int((size**2).sum())) / WHITE
    return int(size.max() if norm == "Linf" else size.sum()) / WHITE


def _raised(
    clean: Levels, sign: Levels, towards: Levels, fraction: NDArray[np.float64], least: float, norm: str, eps: str
) -> Levels:
    """Which changes become one level larger: the largest fractions first, as many as the ball has room for."""
    moved = clean + sign * (towards + 1)
    may = (fraction >= least) & (moved >= 0) & (moved <= WHITE)
    room = math.inf if is_minimum(eps) else _budget(norm, eps)
    if norm == "Linf" or norm in FREE:
        return (may & (towards + 1 <= room)).astype(np.int64)
    cost = 2 * towards + 1 if norm == "L2" else np.ones_like(towards) if norm == "L1" else (towards == 0)
    spent = (towards**2).sum() if norm == "L2" else towards.sum() if norm == "L1" else np.count_nonzero(towards)
    order = np.argsort(np.where(may, -fraction, 1).ravel(), kind="stable")
    total = spent + np.cumsum(np.where(may, cost, 0).ravel()[order])
    raised = np.zeros(may.size, dtype=np.int64)
    raised[order] = (total <= room) & may.ravel()[order]
    return raised.reshape(may.shape)


def _budget(norm: str, eps: str) -> int | float:
    """The most that the levels may differ: the largest difference, the sum, the sum of squares or the count."""
    if norm in FREE:
        return math.inf
    radius: Fraction = exact(eps)
    if norm == "L0":
        return math.floor(radius)
    return math.floor((radius * WHITE) ** 2 if norm == "L2" else radius * WHITE)
