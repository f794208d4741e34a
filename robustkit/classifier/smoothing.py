"""How a model is smoothed, and the votes of its noisy copies.

Cohen, Rosenfeld & Kolter 2019, arXiv:1902.02918; what follows from votes is in `robustkit.statistics`. Ours differs:
the noise is a function of (seed, image, draw), so a verdict repeats in any batch and order, and a point that an attack
leads to is judged by PREDICT, never by a mere plurality.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError
from robustkit.host.arguments import check_fields
from robustkit.primitives import noise
from robustkit.statistics.randomized_smoothing import Certified, certify, fewest_copies, largest_radius

# Streams of noise that never meet: neither the class nor a point may be chosen on what judges it.
_SELECTION, _ESTIMATION, _VERDICT = 0, 1, 2
# Copies that judge a point: with fewer than the first a verdict hardly ever comes about; with the second, a majority of
# 57 % is enough where an attack may have 200 points judged, and four times as many would make it 54 %.
_LEAST_JUDGES, _MOST_JUDGES = 100, 1000

Logits = Callable[[Tensor], Tensor]  # points [n, *S] -> logits [n, K]


@dataclass(frozen=True)
class Smoothing:
    """How a classifier is smoothed, and how sure a statement about it has to be.

    Args:
        sigma: standard deviation of the noise, in units of pixels in [0, 1].
        n: noisy copies of a clean image that predict its class and bound its probability; as many, from 100 to 1000,
            judge a point that an attack leads to.
        n0: noisy copies that choose the class before.
        alpha: chance at most that a prediction, a certificate, or the verdict on an attacked image is wrong.

    Raises:
        UserError: a value is out of range.
    """

    sigma: float
    _: KW_ONLY
    n: int = 10_000
    n0: int = 100
    alpha: float = 0.001

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.sigma < math.inf:
            raise UserError(f"sigma must be a positive number, not {self.sigma}.")
        if not 0 < self.alpha < 0.5:
            raise UserError(f"alpha is a chance of being wrong, above 0 and below 0.5, not {self.alpha}.")
        if min(self.n, self.n0) < 1:
            raise UserError("n and n0 count noisy copies of an image, so each must be at least 1.")
        limits.require_at_most("The number of noisy copies (--smooth-draws)", max(self.n, self.n0), limits.DRAWS)
        least = fewest_copies(self.alpha)
        if self.n < least:
            raise UserError(
                f"{self.n} copies that all agree prove nothing at alpha={self.alpha:g}; take at least {least}."
            )

    @property
    def polled(self) -> int:
        """Copies of a clean image."""
        return self.n0 + self.n

    @property
    def judges(self) -> int:
        """Copies of a point that an attack leads to."""
        return min(max(self.n, _LEAST_JUDGES), _MOST_JUDGES)

    @property
    def reach(self) -> float:
        """The largest L2 radius that can be certified at all: that of an image all of whose copies agree."""
        return largest_radius(self.sigma, self.n, self.alpha)


class Poll(NamedTuple):
    """How many copies of each image were classified as each class, `[N, K]` int64."""

    selection: Tensor  # of the copies that choose the class
    estimation: Tensor  # of those that predict, and bound its probability

    def certified(self, smoothing: Smoothing, values: int) -> Certified:
        """What the votes on images of so many `values` prove."""
        return certify(
            self.selection, self.estimation, sigma=smoothing.sigma, n=smoothing.n, alpha=smoothing.alpha, values=values
        )


def poll(logits: Logits, images: Tensor, numbers: Tensor, smoothing: Smoothing, seed: int, at_once: int) -> Poll:
    """The votes on clean images.

    Args:
        logits: of the network, fp32.
        images: `[N, *S]` in [0, 1].
        numbers: `[N]` int64 names of the images, which with the seed fix their noise.
        smoothing: the noise and the numbers of copies.
        seed: of the noise.
        at_once: copies in flight.
    """
    return Poll(
        _polled(logits, images, numbers, smoothing.sigma, smoothing.n0, _SELECTION, seed, at_once),
        estimation_votes(logits, images, numbers, smoothing, seed, at_once),
    )


def estimation_votes(
    logits: Logits, images: Tensor, numbers: Tensor, smoothing: Smoothing, seed: int, at_once: int
) -> Tensor:
    """`[N, K]` int64 votes on clean images of the copies that predict; arguments as of `poll`."""
    return _polled(logits, images, numbers, smoothing.sigma, smoothing.n, _ESTIMATION, seed, at_once)


def verdict_votes(logits: Logits, points: Tensor, smoothing: Smoothing, seed: int, at_once: int) -> Tensor:
    """`[n, K]` int64 votes on points that an attack leads to.

    The same noise for every point, and no attack sees it: a verdict depends on the point alone.
    """
    same_name = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    return _polled(logits, points, same_name, smoothing.sigma, smoothing.judges, _VERDICT, seed, at_once)


def _polled(
    logits: Logits, images: Tensor, numbers: Tensor, sigma: float, count: int, stream: int, seed: int, at_once: int
) -> Tensor:
    keys = noise.keys(seed, numbers, torch.full_like(numbers, stream))
    return torch.stack(
        [_votes(logits, image, key, sigma, count, at_once) for image, key in zip(images, keys, strict=True)]
    )


def _votes(logits: Logits, image: Tensor, key: Tensor, sigma: float, count: int, at_once: int) -> Tensor:
    """`[K]` int64 of one image."""
    votes = []
    for start in range(0, count, at_once):
        draws = torch.arange(start, min(start + at_once, count), device=image.device)
        shift = noise.normal(key.expand(len(draws)), draws, image.shape).to(image)
        scores = logits(image + sigma * shift)
        if not bool(scores.isfinite().all()):
            raise UserError("The model returns NaN or infinite logits on noisy images; correct the model first.")
        votes.append(scores.argmax(1).bincount(minlength=scores.shape[1]).cpu())
    return torch.stack(votes).sum(0)
