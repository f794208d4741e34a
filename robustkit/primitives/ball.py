"""What every threat model can do: distances, projections, steepest directions and random points.

Attacks call these, and need no code per norm. `project_exact` returns the point that is judged: inside the ball in
float64 arithmetic, without a tolerance.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.rounding import Bounds, inward, rounded_towards, scaled, wide
from robustkit.primitives.rows import along

NormName = str  # one of these, or of the further threats in `threat.py`
NORMS: tuple[NormName, ...] = ("Linf", "L2", "L1", "L0")  # those in which distances are reported
FREE: tuple[NormName, ...] = ("patch", "frame")  # threats inside of which values are free


@dataclass(frozen=True)
class Ball(ABC):
    """All valid images at most `eps` away from an image; `eps` in units of pixels that lie in [0, 1].

    Points and gradients are `[B, *S]`; `x` is the clean image, inside the box.
    """

    eps: float
    norm: ClassVar[NormName]
    order: ClassVar[float]
    largest: ClassVar[float] = math.inf  # radius
    measure: ClassVar[str] = ""  # what a radius is a number of, where that is not the norm
    attacks: ClassVar[str] = ""  # that are made for it, in words for messages; "" where most attacks are
    renders: ClassVar[bool] = False  # whether attacks query parameters of which `render` makes images
    needs_network: ClassVar[bool] = False  # whether distances are those of features, known in a session only

    @property
    def forwards(self) -> int:
        """Forward passes of the attacked model that the exact projection of one point takes."""
        return 0

    def check(self, shape: Sequence[int]) -> None:  # noqa: B027 - a norm has a ball around every image
        """Check that there is such a ball around images of shape `S`.

        Raises:
            UserError: there is not.
        """

    def origin(self, x: Tensor) -> Tensor:
        """`[B, *P]` the query that changes nothing; for norms the image itself."""
        return x

    def render(self, x: Tensor, query: Tensor) -> Tensor:
        """`[B, *S]` the images that the model is asked about; for norms the queries themselves."""
        return query

    @abstractmethod
    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        """`[B]` float64 distances between images."""

    @abstractmethod
    def project(self, x: Tensor, point: Tensor) -> Tensor:
        """A point of the ball near `point`, up to rounding; the nearest one but for L2."""

    @abstractmethod
    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        """The direction of unit length along which the loss rises most, in new memory; zero where `grad` is zero."""

    @abstractmethod
    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        """Random points of the ball, one per row, the same for the same `key` and `draw`."""

    def climb(self, x: Tensor, point: Tensor, grad: Tensor, length: float | Tensor) -> Tensor:
        """The projected end of a step of `length` from `point` along the steepest direction."""
        return self.project(x, self.steepest(grad, point).mul_(length).add_(point))

    def contains(self, x: Tensor, point: Tensor) -> Tensor:
        """`[B]`: whether a point lies in ball and box, up to the rounding of an fp32 projection."""
        near = self.distance(x, point) <= self.eps * (1 + 1e-5) + 1e-7
        return near & ((point >= 0) & (point <= 1)).flatten(1).all(1)

    def project_exact(self, x: Tensor, point: Tensor) -> Tensor:
        """The point that is judged: its exact distance is at most `eps`, and it lies in the box."""
        return self._exact(x, self._change(x, point), self.eps).clamp_(0, 1)

    def project_exact_around(self, original: Tensor, bounds: Bounds, x: Tensor, point: Tensor) -> Tensor:
        """The judged point in the units and the type of `original`, which `x` is a scaled and rounded copy of.

        Its exact distance from `original` is at most `eps` times the range of `bounds` (in L0 `eps`). Every value lies
        in `bounds`, or is that of `original`. A value that `point` leaves as it is in `x` is left in `original`, too.
        """
        change = self._change(x, point) * (bounds[1] - bounds[0])
        near = self._exact(original, change, scaled(self.eps, bounds))
        low, high = inward(bounds, original.dtype)
        return near.clamp(original.clamp(max=low), original.clamp(min=high))

    def _change(self, x: Tensor, point: Tensor) -> Tensor:
        """float64 `[B, *S]` what leads to the projected point, up to rounding."""
        return wide(self.project(x, point)) - wide(x)

    def _exact(self, clean: Tensor, change: Tensor, radius: float) -> Tensor:
        """`clean` plus a float64 `change`, shortened to `radius`, in the type of `clean`."""
        # The factor covers the rounding of the float64 sums. Values are then rounded towards the clean image, which
        # can only shorten the change.
        length = change.flatten(1).norm(p=self.order, dim=1).clamp(min=1e-300)
        change = change * along((radius * (1 - 1e-12) / length).clamp(max=1), change)
        return rounded_towards(clean, change, change.abs())


def levelled(grad: Tensor) -> Tensor:
    """Each row divided by its largest absolute value: no norm of it underflows or overflows. Zero stays zero."""
    most = grad.flatten(1).abs().amax(1).clamp(min=torch.finfo(grad.dtype).tiny)
    return grad / along(most, grad)


def unit(grad: Tensor) -> Tensor:
    """Each row at length 1 in L2. Zero stays zero."""
    grad = levelled(grad)
    return grad / along(grad.flatten(1).norm(dim=1).clamp(min=1e-12), grad)


def finer(key: Tensor) -> Tensor:
    """The key of a second stream, for a draw that needs two independent sets of numbers."""
    return noise.finalise(key + 1)
