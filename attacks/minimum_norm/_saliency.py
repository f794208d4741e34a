"""The most salient change of one or two values: its rise of the class aimed at, times its fall of the other classes.

Papernot et al. 2016, arXiv:1511.07528, equation 8. The best pair is found without comparing all pairs: it consists of
changes that at most two others surpass both in the rise and in the fall.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_MOST_PAIRED = 256  # most changes whose pairs are compared; with random gains there are far fewer


class Gains(NamedTuple):
    """The effect of every change; with n values, changes i and i + n are the two directions of value i."""

    towards: Tensor  # [B, 2n] rise of the class aimed at
    others: Tensor  # [B, 2n] fall of all other classes
    possible: Tensor  # [B, 2n] bool, the change is allowed


def score(towards: Tensor, others: Tensor) -> Tensor:
    """The saliency: the product of rise and fall where both are positive, else 0."""
    return torch.where((towards > 0) & (others > 0), towards * others, 0)


def best_one(gains: Gains) -> tuple[Tensor, Tensor]:
    """`[B, 1]` the most salient change, and its saliency."""
    value = score(gains.towards, gains.others) * gains.possible
    place = value.argmax(1, keepdim=True)
    return place, value.gather(1, place)


def best_pair(gains: Gains) -> tuple[Tensor, Tensor]:
    """`[B, 2]` the most salient pair of changes of two values, and its saliency `[B, 1]`.

    At most two changes surpass a member of the best pair both in rise and in fall: its partner, and the opposite change
    of the partner's value. Any other such change could replace the member and give a better pair.
    """
    places, values = _foremost(gains), gains.towards.shape[1] // 2
    towards, others = gains.towards.gather(1, places), gains.others.gather(1, places)
    sums = score(towards.unsqueeze(2) + towards.unsqueeze(1), others.unsqueeze(2) + others.unsqueeze(1))
    possible, value = gains.possible.gather(1, places), places % values
    allowed = possible.unsqueeze(2) & possible.unsqueeze(1) & (value.unsqueeze(2) != value.unsqueeze(1))
    sums = (sums * allowed).flatten(1)
    best = sums.argmax(1, keepdim=True)
    count = places.shape[1]
    return places.gather(1, torch.cat([best // count, best % count], 1)), sums.gather(1, best)


def _foremost(gains: Gains) -> Tensor:
    """`[B, m]` the changes that at most two others surpass both in rise and in fall, followed by some others.

    With more than `_MOST_PAIRED` of them, the first ones.
    """
    kept, left = torch.zeros_like(gains.possible), gains.possible
    order = gains.towards.masked_fill(~gains.possible, -torch.inf).argsort(dim=1, descending=True, stable=True)
    for _ in range(3):
        others = torch.where(left, gains.others, -torch.inf).gather(1, order)
        before = others.cummax(1).values.roll(1, 1)
        before[:, 0] = -torch.inf
        layer = torch.zeros_like(kept).scatter(1, order, others > before)
        kept, left = kept | layer, left & ~layer
    count = int(kept.sum(1).amax().clamp(1, _MOST_PAIRED))
    return kept.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count]
