"""Randomized smoothing as functions of votes: what noisy copies of an image prove about the class they agree on.

Cohen, Rosenfeld & Kolter 2019, arXiv:1902.02918, algorithms PREDICT and CERTIFY. Ours differs: norms other than L2 get
the radius that the L2 radius implies. The guarantee is about the smoothed classifier, not about the network. Bad at:
Linf in many dimensions, where the radius shrinks by the square root of their number.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.threat import norm_name

ABSTAINS: Final = -1  # stands for a class where no class is certain


@dataclass(frozen=True)
class Certified:
    """What is certain of each image, on the CPU, in the order of the images."""

    prediction: Tensor  # [N] int64, ABSTAINS where no class is certain
    radius: Tensor  # [N] float64 in L2, units of pixels in [0, 1]; 0 where it abstains
    probability: Tensor  # [N] float64, lower bound of the probability that noise leaves the class as it is
    values: int  # of one image, for radii in other norms

    def radius_in(self, norm: str) -> Tensor:
        """`[N]` radii in another norm: no point of that ball is farther away than the L2 radius.

        Raises:
            UserError: the norm is L0, for which an L2 radius certifies nothing.
        """
        return self.radius * radius_factor(norm, self.values)

    def accuracy(self, y: Tensor, eps: float, norm: str = "L2") -> float:
        """Share of images classified correctly in their whole ball: a lower bound of robust accuracy.

        Args:
            y: `[N]` true classes.
            eps: radius of the balls.
            norm: "L2", "L1" or "Linf".
        """
        return ((self.prediction == y.cpu()) & (self.radius_in(norm) >= eps)).double().mean().item()


def predict(votes: Tensor, alpha: float) -> Tensor:
    """`[N]` int64 classes that most copies chose, on the CPU, ABSTAINS where two classes may well be equally likely.

    Args:
        votes: `[N, K]` int64, how many noisy copies of each image were classified as each class.
        alpha: a prediction is wrong with at most this probability.

    Source: Cohen et al. 2019, PREDICT; the test is Hung & Fithian's 2019.
    """
    from scipy.stats import binomtest

    votes = votes.cpu()
    first, second = votes.topk(2, 1).values.unbind(1)
    certain = [bool(binomtest(int(a), int(a + b), 0.5).pvalue <= alpha) for a, b in zip(first, second, strict=True)]
    abstain = torch.full((len(votes),), ABSTAINS, device="cpu")
    return torch.where(torch.tensor(certain, dtype=torch.bool, device="cpu"), votes.argmax(1), abstain)


def certify(selection: Tensor, estimation: Tensor, *, sigma: float, n: int, alpha: float, values: int) -> Certified:
    """The class of each image with the L2 radius within which it is certain.

    Args:
        selection: `[N, K]` int64 votes of the copies that choose the class.
        estimation: `[N, K]` int64 votes of `n` further copies, which bound the probability of that class.
        sigma: standard deviation of the noise.
        n: copies of each image in `estimation`.
        alpha: a certificate is wrong with at most this probability.
        values: numbers in one image.

    Source: Cohen et al. 2019, CERTIFY.
    """
    top = selection.argmax(1)
    counts = estimation.gather(1, top[:, None]).squeeze(1).tolist()
    bounds = [lower_bound(int(count), n, alpha) for count in counts]
    radius = torch.tensor([certified_radius(bound, sigma) for bound in bounds], dtype=torch.float64, device="cpu")
    prediction = torch.where(radius > 0, top, torch.full_like(top, ABSTAINS))
    return Certified(prediction, radius, torch.tensor(bounds, dtype=torch.float64, device="cpu"), values)


def lower_bound(count: int, n: int, alpha: float) -> float:
    """One-sided lower confidence bound of a probability, after `count` successes in `n` trials.

    Source: Clopper & Pearson 1934.
    """
    from scipy.stats import beta

    return float(beta.ppf(alpha, count, n - count + 1)) if count else 0.0


def certified_radius(probability: float, sigma: float) -> float:
    """The L2 radius within which a class of this probability stays the most likely; 0 from one half down."""
    return sigma * NormalDist().inv_cdf(probability) if probability > 0.5 else 0.0


def largest_radius(sigma: float, n: int, alpha: float) -> float:
    """The L2 radius of an image whose `n` copies all agree: no certificate reaches farther."""
    return certified_radius(lower_bound(n, n, alpha), sigma)


def fewest_copies(alpha: float) -> int:
    """The smallest `n` with which copies that all agree certify a radius above 0."""
    return math.ceil(math.log(alpha) / math.log(0.5) + 1e-9)


def radius_factor(norm: str, values: int) -> float:
    """The radius in `norm` that an L2 radius of 1 implies for an image of so many values.

    Raises:
        UserError: it is L0 or no norm, for which an L2 radius certifies nothing.
    """
    name = norm_name(norm)
    if name not in ("Linf", "L2", "L1"):
        raise UserError(f"An L2 radius certifies nothing in {name}; ask for L2, L1 or Linf.")
    return 1 / math.sqrt(values) if name == "Linf" else 1.0
