"""Gaussian blur: the image is blurred more and more until it is misclassified.

As in foolbox (Rauber et al. 2017, arXiv:1707.04131), with the same filter: reflected borders, cut off at four standard
deviations. Ours differs: the linear search is followed by a bisection, standard deviations grow with the square of the
share, because errors lie at small ones, and with a radius the search ends at the surface of the ball.
Bad at: everything but models that depend on fine structure; it tries a single direction.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from ._walk import Walk

_CUT = 4.0  # standard deviations; scipy's gaussian_filter, which foolbox uses, has the same


@dataclass(frozen=True)
class GaussianBlur(Walk):
    """Images blurred along every axis but that of the channels; vectors along their only axis.

    Args:
        queries: forward passes per trial, at least 2.
        steps: degrees of blur that are queried.
        halvings: how often the way to the first error among them is halved.
        max_sigma: the largest standard deviation, in pixels; None is the longer side of the image.
    """

    _: KW_ONLY
    max_sigma: float | None = None

    norms = ("Linf", "L2", "L1")
    reach_halvings = 12  # each costs as much as a query of a small network

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_sigma is not None:
            self.positive("max_sigma")

    def member(self, x: Tensor, family: Tensor, share: Tensor) -> Tensor:
        sides = x.shape[2:] or x.shape[1:]
        largest = max(sides) if self.max_sigma is None else self.max_sigma
        return blurred(x, largest * share.square())


def blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """`[B, *S]` images filtered with standard deviations `[B]`, in pixels; exactly `x` where these are 0."""
    widths, sides = sigma.tolist(), x.shape[2:] or x.shape[1:]
    # Most rows of a batch have the same width, and making a filter takes longer than applying it.
    filters = {(side, width): _filter(side, width, x) for side in {*sides} for width in {*widths}}
    # One row at a time: the rounding of a matrix product depends on the batch size and on the address in memory.
    rows = [_filtered(image.clone(), width, filters) for image, width in zip(x, widths, strict=True)]
    return torch.stack(rows).clamp(0, 1)


def _filtered(image: Tensor, sigma: float, filters: dict[tuple[int, float], Tensor]) -> Tensor:
    """One image, filtered along all axes but the first; along the only axis of a vector."""
    for axis in range(min(1, image.dim() - 1), image.dim()):
        lines = image.movedim(axis, 0)
        product = filters[len(lines), sigma] @ lines.reshape(len(lines), -1)
        image = product.reshape(lines.shape).movedim(0, axis)
    return image


def _filter(side: int, sigma: float, like: Tensor) -> Tensor:
    """`[side, side]` matrix that filters a line of pixels; its rows sum to 1."""
    if sigma == 0:
        return torch.eye(side, device=like.device).to(like)
    cut, period = int(_CUT * sigma + 0.5), 2 * side
    # Borders reflect, so a line and its mirror image repeat for ever: the bell is folded into one period.
    most = cut // period + 1
    away = torch.arange(-most * period, most * period, device=like.device, dtype=torch.float64)
    bell = ((away.abs() <= cut) * torch.exp(-away.square() / (2 * sigma**2))).reshape(-1, period).sum(0)
    place = torch.arange(side, device=like.device)
    row, column = place.unsqueeze(1), place
    weights = bell[(row - column) % period] + bell[(row + column + 1) % period]
    return (weights / weights.sum(1, keepdim=True)).to(like)
