"""Threat models in which an image is changed by parameters, such as an angle, that a renderer turns into an image.

Attacks query the parameters `[B, *P]`. The engine renders them before the network, so gradients arrive in the
parameters, and the point that is judged is the image of parameters that lie inside the ball exactly.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.ball import Ball
from robustkit.primitives.rounding import Bounds, inward, wide
from robustkit.primitives.rows import along


@dataclass(frozen=True)
class Rendered(Ball):
    """Images whose parameters are at most `eps` times the `unit` of each parameter; zero leaves the image as it is.

    Points, queries and gradients are `[B, *P]` here, and `x` is the image.
    """

    renders = True
    order = torch.inf
    attacks = "pgd or noise"

    @abstractmethod
    def unit(self, like: Tensor) -> Tensor:
        """`[*P]` how far each parameter goes at a radius of 1; `like` are images or parameters."""

    def check(self, shape: Sequence[int]) -> None:
        if len(shape) != 3:
            raise UserError(
                f"The threat {self.norm} changes images [channels, height, width], and these inputs are "
                f"{list(shape)}; take a norm for them."
            )

    def origin(self, x: Tensor) -> Tensor:
        unit = self.unit(x)
        return torch.zeros(len(x), *unit.shape, dtype=x.dtype, device=x.device)

    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        return (wide(point) / wide(self.unit(x))).abs().flatten(1).amax(1).to(x.device)

    def project(self, x: Tensor, point: Tensor) -> Tensor:
        most = (self.unit(x) * self.eps).to(point)
        return torch.maximum(torch.minimum(point, most), -most)

    def project_exact(self, x: Tensor, point: Tensor) -> Tensor:
        """The parameters that are judged: in float64, none is farther than `eps` times its unit."""
        projected = self.project(x, point)
        over = (wide(projected) / wide(self.unit(x))).abs() > self.eps
        return torch.where(over.to(point.device), projected.nextafter(torch.zeros_like(projected)), projected)

    def project_exact_around(self, original: Tensor, bounds: Bounds, x: Tensor, point: Tensor) -> Tensor:
        return self.render_around(original, bounds, self.project_exact(x, point))

    def render_around(self, original: Tensor, bounds: Bounds, parameters: Tensor) -> Tensor:
        """Images in the units and the type of `original`; `original` itself where the parameters are zero."""
        low, high = bounds
        made = self.render((original - low) / (high - low), parameters) * (high - low) + low
        least, most = inward(bounds, original.dtype)
        still = (parameters == 0).flatten(1).all(1)
        return torch.where(along(still, original), original, made.clamp(least, most))

    def contains(self, x: Tensor, point: Tensor) -> Tensor:
        return self.distance(x, point) <= self.eps * (1 + 1e-5) + 1e-7

    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        return grad.sign() * self.unit(grad)

    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        unit = self.unit(x)
        return self.project(x, (noise.uniform(key, draw, unit.shape).to(x) * 2 - 1) * (self.eps * unit))
