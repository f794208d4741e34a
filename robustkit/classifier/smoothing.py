"""Randomized smoothing: the class a network says most often of noisy copies, with a radius that no attack can beat.

Cohen, Rosenfeld & Kolter 2019, arXiv:1902.02918, algorithms PREDICT and CERTIFY, as functions of votes. Ours differs:
the noise is a function of (seed, image, draw), so a verdict repeats in any batch and order; other norms than L2 get the
radius that the L2 radius implies; and a point that an attack found is judged by PREDICT, never by a mere plurality. The
guarantee is about the smoothed classifier, not about the network. Bad at: Linf in many dimensions, where the radius
shrinks by the square root of their number.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.threat import norm_name

ABSTAINS = -1

# Streams of noise that never meet: neither the class nor a point may be chosen on what judges it.
_SELECTION, _ESTIMATION, _VERDICT = 0, 1, 2
# Copies that judge a point: with fewer than the first a verdict hardly ever comes about; with the second, a majority of
# 57 % is enough where an attack may have 200 points judged, and four times as many would make it 54 %.
_LEAST_JUDGES, _MOST_JUDGES = 100, 1000

Ask = Callable[[Tensor], Tensor]  # points [n, *S] -> logits [n, K]


@dataclass(frozen=True)
class Smoothing:
    """How a classifier is smoothed, and how sure what is said of it has to be.

    Args:
        sigma: standard deviation of the noise, in units of pixels in [0, 1].
        n: noisy copies of a clean image that predict its class and bound its probability; as many, from 100 to 1000,
            judge a point that an attack found.
        n0: noisy copies that choose the class before.
        alpha: chance at most that a prediction, a certificate, or an attack on an image is judged wrongly.

    Raises:
        UserError: a value is out of range.
    """

    sigma: float
    _: KW_ONLY
    n: int = 10_000
    n0: int = 100
    alpha: float = 0.001

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise UserError(f"sigma must be a positive number, not {self.sigma}.")
        if not 0 < self.alpha < 0.5:
            raise UserError(f"alpha is a chance of being wrong, above 0 and below 0.5, not {self.alpha}.")
        if min(self.n, self.n0) < 1:
            raise UserError("n and n0 count noisy copies of an image, so each must be at least 1.")
        least = math.ceil(math.log(self.alpha) / math.log(0.5) + 1e-9)
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
        """Copies of a point that an attack found."""
        return min(max(self.n, _LEAST_JUDGES), _MOST_JUDGES)

    @property
    def reach(self) -> float:
        """The largest L2 radius that can be certified at all: that of an image all of whose copies agree."""
        return radius_of(lower_bound(self.n, self.n, self.alpha), self.sigma)


class Poll(NamedTuple):
    """How often each class was said of each image, `[N, K]` int64."""

    chosen: Tensor  # by the copies that choose the class
    counted: Tensor  # by those that predict, and bound its probability


@dataclass(frozen=True)
class Certified:
    """What is certain of each image, on the CPU, in the order of the images."""

    prediction: Tensor  # [N] int64, -1 where nothing can be said
    radius: Tensor  # [N] float64 in L2, units of pixels in [0, 1]; 0 where it abstains
    probability: Tensor  # [N] float64, lower bound of the chance that noise leaves the class as it is
    values: int  # of one image, for radii in other norms

    def radius_in(self, norm: str) -> Tensor:
        """`[N]` radii in another norm: no point of that ball is farther than the L2 radius.

        Raises:
            UserError: the norm is L0, for which L2 says nothing.
        """
        return self.radius * share_of(norm, self.values)

    def accuracy(self, y: Tensor, eps: float, norm: str = "L2") -> float:
        """Share of images classified correctly all over their ball: a lower bound, beside the attacks' upper one.

        Args:
            y: `[N]` true classes.
            eps: radius of the balls.
            norm: "L2", "L1" or "Linf".
        """
        return ((self.prediction == y.cpu()) & (self.radius_in(norm) >= eps)).double().mean().item()


def poll(ask: Ask, images: Tensor, numbers: Tensor, how: Smoothing, seed: int, at_once: int) -> Poll:
    """The votes on clean images; `numbers` `[N]` int64 name them, and with the seed fix their noise."""
    return Poll(
        _polled(ask, images, numbers, how.sigma, how.n0, _SELECTION, seed, at_once),
        counted(ask, images, numbers, how.sigma, how.n, seed, at_once),
    )


def counted(ask: Ask, images: Tensor, numbers: Tensor, sigma: float, n: int, seed: int, at_once: int) -> Tensor:
    """`[N, K]` int64 votes on clean images of the copies that predict and count."""
    return _polled(ask, images, numbers, sigma, n, _ESTIMATION, seed, at_once)


def judged(ask: Ask, points: Tensor, how: Smoothing, seed: int, at_once: int) -> Tensor:
    """`[n, K]` int64 votes on points that an attack found.

    The same noise for every point, and no attack sees it: a verdict depends on the point alone.
    """
    nobody = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    return _polled(ask, points, nobody, how.sigma, how.judges, _VERDICT, seed, at_once)


def _polled(
    ask: Ask, images: Tensor, numbers: Tensor, sigma: float, count: int, stream: int, seed: int, at_once: int
) -> Tensor:
    keys = noise.keys(seed, numbers, torch.full_like(numbers, stream))
    return torch.stack(
        [_votes(ask, image, key, sigma, count, at_once) for image, key in zip(images, keys, strict=True)]
    )


def _votes(ask: Ask, image: Tensor, key: Tensor, sigma: float, count: int, at_once: int) -> Tensor:
    """`[K]` int64 of one image."""
    votes = []
    for start in range(0, count, at_once):
        draws = torch.arange(start, min(start + at_once, count), device=image.device)
        shift = noise.normal(key.expand(len(draws)), draws, image.shape).to(image)
        logits = ask(image + sigma * shift)
        if not bool(logits.isfinite().all()):
            raise UserError("The model returns NaN or infinite logits on noisy images; mend the model first.")
        votes.append(logits.argmax(1).bincount(minlength=logits.shape[1]).cpu())
    return torch.stack(votes).sum(0)


def predicted(votes: Tensor, alpha: float) -> Tensor:
    """`[N]` int64 classes that votes `[N, K]` speak for, -1 where two classes may well be a fair coin's.

    Source: Cohen et al. 2019, PREDICT; the test is Hung & Fithian's 2019.
    """
    from scipy.stats import binomtest

    first, second = votes.topk(2, 1).values.unbind(1)
    sure = [binomtest(int(a), int(a + b), 0.5).pvalue <= alpha for a, b in zip(first, second, strict=True)]
    return torch.where(torch.tensor(sure, dtype=torch.bool), votes.argmax(1), torch.full((len(votes),), ABSTAINS))


def certified(votes: Poll, how: Smoothing, values: int) -> Certified:
    """What the votes on images of so many `values` prove.

    Source: Cohen et al. 2019, CERTIFY.
    """
    top = votes.chosen.argmax(1)
    counts = votes.counted.gather(1, top[:, None]).squeeze(1).tolist()
    lower = [lower_bound(int(count), how.n, how.alpha) for count in counts]
    radius = torch.tensor([radius_of(bound, how.sigma) for bound in lower], dtype=torch.float64)
    prediction = torch.where(radius > 0, top, torch.full_like(top, ABSTAINS))
    return Certified(prediction, radius, torch.tensor(lower, dtype=torch.float64), values)


def lower_bound(count: int, n: int, alpha: float) -> float:
    """The least probability that does not make `count` of `n` or more a surprise at level `alpha`.

    Source: Clopper & Pearson 1934, one-sided.
    """
    from scipy.stats import beta

    return float(beta.ppf(alpha, count, n - count + 1)) if count else 0.0


def radius_of(probability: float, sigma: float) -> float:
    """The L2 radius within which a class of this probability stays the likeliest; 0 from a half down."""
    return sigma * NormalDist().inv_cdf(probability) if probability > 0.5 else 0.0


def share_of(norm: str, values: int) -> float:
    """The radius in another norm for an L2 radius of 1 around an image of so many values.

    Raises:
        UserError: the norm is L0, for which L2 says nothing.
    """
    name = norm_name(norm)
    if name == "L0":
        raise UserError("An L2 radius certifies nothing in L0; ask for L2, L1 or Linf.")
    return 1 / math.sqrt(values) if name == "Linf" else 1.0
