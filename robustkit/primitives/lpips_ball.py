"""Threat model of perceptual attacks: images whose features in a network are near those of the image (LPIPS).

Laidlaw, Singla & Feizi 2021, arXiv:2006.12655, section 3: the Euclidean distance of the features of several layers,
each normalised over the channels at every place and divided by the root of the number of places. It is the root of the
LPIPS of Zhang et al. 2018, arXiv:1801.03924, without its learned weights.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ball import Ball, unit
from robustkit.primitives.rounding import Bounds, inward, wide
from robustkit.primitives.rows import along

_START = 0.01  # standard deviation of the noise that attacks begin with, in the authors' code
# Of the radius: the features of one image differ in their last digits between batch sizes and machines.
_ROUNDING = 1e-4
_FLAT = 1e-20  # added to squared lengths: the authors add 1e-10 to the length, whose root has no slope at 0


class Reading(Protocol):
    """What gives the features of points that the attacked network is asked about."""

    def __call__(self, points: Tensor) -> Tensor:
        """`[B, F]` normalised features at points `[B, *S]` in [0, 1]; differentiable."""


class FeatureMap(Protocol):
    """A network whose features say how alike two images look."""

    @property
    def forwards(self) -> int:
        """Forward passes of the attacked model that the features of one image take: 0 or 1."""

    @property
    def size(self) -> int:
        """How many features an image has."""

    @property
    def label(self) -> str:
        """What tells it apart from other feature maps of one session."""

    def __call__(self, points: Tensor) -> Tensor:
        """`[B, F]` normalised features at points `[B, *S]` in [0, 1], bit-equal in any batch."""

    def watching(self) -> AbstractContextManager[Reading]:
        """Gives the features of the points that pass the attacked network meanwhile."""


@dataclass(frozen=True)
class Lpips(Ball):
    """Images whose normalised features are at most `eps` away from those of the image."""

    features: FeatureMap | None = field(default=None, repr=False, compare=False)  # of a session

    norm = "lpips"
    order = 2.0
    attacks = "lpa and ppgd"
    measure = "units of LPIPS"
    needs_network = True

    @property
    def forwards(self) -> int:
        return 0 if self.features is None else 2 * self.features.forwards

    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        assert self.features is not None, "distances in lpips need a session with a network"
        away: Tensor = (wide(self.features(point)) - wide(self.features(x))).norm(dim=1)
        return away

    def project(self, x: Tensor, point: Tensor) -> Tensor:
        """The point where it lies inside, else the image: attacks bring their points inside by themselves."""
        return self.project_exact(x, point)

    def project_exact(self, x: Tensor, point: Tensor) -> Tensor:
        return torch.where(along(self._inside(x, point), x), point, x)

    def project_exact_around(self, original: Tensor, bounds: Bounds, x: Tensor, point: Tensor) -> Tensor:
        low, high = bounds
        least, most = inward(bounds, original.dtype)
        made = (low + wide(point) * (high - low)).to(original).clamp(least, most)
        made = torch.where(point == x, original, made)
        unit = ((wide(made) - low) / (high - low)).to(x)
        return torch.where(along(self._inside(x, unit), original), made, original)

    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        """The gradient at unit length in L2."""
        return unit(grad)

    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        """A valid point near the image, as the authors' attacks begin: it need not lie in the ball."""
        return (x + _START * noise.normal(key, draw, x.shape[1:]).to(x)).clamp(0, 1)

    def _inside(self, x: Tensor, point: Tensor) -> Tensor:
        near: Tensor = self.distance(x, point).to(x.device) <= self.eps * (1 - _ROUNDING)
        valid = ((point >= 0) & (point <= 1)).flatten(1).all(1)
        return near.logical_and(valid) if self.eps > 0 else torch.zeros_like(valid)


def normalised(layers: Sequence[Tensor]) -> Tensor:
    """`[B, F]` the features of all layers, whose Euclidean distance is the LPIPS.

    Args:
        layers: outputs `[B, C, ...]` of layers, or `[B, tokens, C]` of a transformer's.
    """
    return torch.cat([_of_layer(each.transpose(1, 2) if each.dim() == 3 else each) for each in layers], 1)


def _of_layer(values: Tensor) -> Tensor:
    length = (values.square().sum(1, keepdim=True) + _FLAT).sqrt()
    places = values[0, 0].numel() if values.dim() > 2 else 1
    return (values / (length * math.sqrt(places))).flatten(1)
