"""Grad-CAM maps, and measures of how much an attack changes them.

Selvaraju et al. 2017, arXiv:1610.02391, eq. 1 and 2: each channel of a feature map is weighted by the mean of the class
score's gradient over all places; negative values of the weighted sum are set to zero.
Bad at: feature maps of a few places, and networks in which a place of the map is no place of the image.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FOREGROUND = 0.15  # of the map's maximum: section 4.1 of the paper


def cam(features: Tensor, grad: Tensor) -> Tensor:
    """The map `[B, H, W]`, at least 0, of features `[B, C, H, W]` and the class score's gradient with respect to them.

    The score is the logit, before any softmax.
    """
    weights = grad.mean((2, 3), keepdim=True)
    return (weights * features).sum(1).relu()


def overlap(one: Tensor, other: Tensor) -> Tensor:
    """`[B]` intersection over union of the foregrounds of maps `[B, H, W]`; NaN where both maps are empty."""
    first, second = _foreground(one), _foreground(other)
    union = (first | second).flatten(1).sum(1).double()
    return (first & second).flatten(1).sum(1) / union.where(union > 0, torch.full_like(union, torch.nan))


def rank_correlation(one: Tensor, other: Tensor) -> Tensor:
    """`[B]` Spearman's rank correlation of two maps, with mean ranks for ties; NaN for a constant map."""
    first, second = (_ranks(maps.detach().flatten(1).cpu().numpy()) for maps in (one, other))
    first, second = first - first.mean(1, keepdims=True), second - second.mean(1, keepdims=True)
    above = torch.from_numpy((first * second).sum(1))
    below = torch.from_numpy(np.sqrt((first**2).sum(1) * (second**2).sum(1)))
    return torch.where(below > 0, above / below, torch.nan)


def _foreground(maps: Tensor) -> Tensor:
    # Strictly above, so that an empty map has no foreground.
    return maps > FOREGROUND * maps.amax((1, 2), keepdim=True)


def _ranks(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    from scipy.stats import rankdata

    return np.asarray(rankdata(rows, axis=1), dtype=np.float64)
