"""Randomized smoothing: the class a network says most often of noisy copies, with a radius that no attack can beat.

Cohen, Rosenfeld & Kolter 2019, arXiv:1902.02918, algorithms PREDICT and CERTIFY. Ours differs: the noise is a function
of (seed, image, draw), so a verdict repeats in any batch and order; and other norms than L2 get the radius that the L2
radius implies. The guarantee is about the smoothed classifier, not about the network, and each statement on an image
fails with a chance of at most `alpha`. Bad at: Linf in many dimensions, where the radius shrinks by the square root of
their number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor, nn

from robustkit import noise
from robustkit.classifier import Classifier
from robustkit.errors import UserError
from robustkit.preflight import checked_images
from robustkit.threat import norm_name

ABSTAINS = -1

_SELECTION, _ESTIMATION = 0, 1  # streams of noise that never meet: the class must not be chosen on what judges it


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
        name = norm_name(norm)
        if name == "L0":
            raise UserError("An L2 radius certifies nothing in L0; ask for L2, L1 or Linf.")
        return self.radius / math.sqrt(self.values) if name == "Linf" else self.radius

    def accuracy(self, y: Tensor, eps: float, norm: str = "L2") -> float:
        """Share of images classified rightly all over their ball: a lower bound, beside the attacks' upper one.

        Args:
            y: `[N]` true classes.
            eps: radius of the balls.
            norm: "L2", "L1" or "Linf".
        """
        return ((self.prediction == y.cpu()) & (self.radius_in(norm) >= eps)).double().mean().item()


def predict(
    model: nn.Module | Classifier,
    x: Tensor,
    *,
    sigma: float,
    n: int = 1000,
    alpha: float = 0.001,
    seed: int = 0,
    ids: Sequence[int] | None = None,
    batch_size: int = 256,
) -> Tensor:
    """`[N]` int64 classes that the smoothed classifier says, -1 where too few copies agree.

    Args:
        model: takes pixels in [0, 1], and noise around them.
        x: `[N, *S]` images.
        sigma: standard deviation of the noise, in units of pixels in [0, 1].
        n: noisy copies of each image.
        alpha: chance at most that a class which is said is not the smoothed classifier's.
        seed: of the noise.
        ids: a number for each image, which its noise depends on; else its place.
        batch_size: copies in flight; on a CPU it does not change a verdict.

    Raises:
        UserError: an argument is out of range.
    """
    from scipy.stats import binomtest

    _check(sigma, alpha, n, batch_size)
    votes = _votes(model, x, sigma, (n,), (_ESTIMATION,), seed, ids, batch_size)[0]
    first, second = votes.topk(2, 1).values.unbind(1)
    # Is it a fair coin that decides between the two?
    sure = [binomtest(int(a), int(a + b), 0.5).pvalue <= alpha for a, b in zip(first, second, strict=True)]
    return torch.where(torch.tensor(sure, dtype=torch.bool), votes.argmax(1), torch.full((len(votes),), ABSTAINS))


def certify(
    model: nn.Module | Classifier,
    x: Tensor,
    *,
    sigma: float,
    n0: int = 100,
    n: int = 10_000,
    alpha: float = 0.001,
    seed: int = 0,
    ids: Sequence[int] | None = None,
    batch_size: int = 256,
) -> Certified:
    """The class of each image with the radius within which the smoothed classifier says nothing else.

    Args:
        model: takes pixels in [0, 1], and noise around them.
        x: `[N, *S]` images.
        sigma: standard deviation of the noise, in units of pixels in [0, 1].
        n0: noisy copies that choose the class.
        n: further copies that bound its probability.
        alpha: chance at most that a radius is too large.
        seed: of the noise.
        ids: a number for each image, which its noise depends on; else its place.
        batch_size: copies in flight; on a CPU it does not change a verdict.

    Raises:
        UserError: an argument is out of range.
    """
    _check(sigma, alpha, min(n0, n), batch_size)
    chosen, counted = _votes(model, x, sigma, (n0, n), (_SELECTION, _ESTIMATION), seed, ids, batch_size)
    top = chosen.argmax(1)
    counts = counted.gather(1, top[:, None]).squeeze(1).tolist()
    lower = [lower_bound(int(count), n, alpha) for count in counts]
    radius = torch.tensor([sigma * NormalDist().inv_cdf(p) if p > 0.5 else 0.0 for p in lower], dtype=torch.float64)
    prediction = torch.where(radius > 0, top, torch.full_like(top, ABSTAINS))
    return Certified(prediction, radius, torch.tensor(lower, dtype=torch.float64), x[0].numel())


def lower_bound(count: int, n: int, alpha: float) -> float:
    """The least probability that does not make `count` of `n` or more a surprise at level `alpha`.

    Source: Clopper & Pearson 1934, one-sided.
    """
    from scipy.stats import beta

    return float(beta.ppf(alpha, count, n - count + 1)) if count else 0.0


def _votes(
    model: nn.Module | Classifier,
    x: Tensor,
    sigma: float,
    counts: Sequence[int],
    streams: Sequence[int],
    seed: int,
    ids: Sequence[int] | None,
    batch_size: int,
) -> list[Tensor]:
    """`[N, K]` int64 how often each class was said, for each stream of noise."""
    classifier = model if isinstance(model, Classifier) else Classifier(model)
    images = classifier.place(checked_images(x.detach(), classifier.bounds))
    if ids is not None and len(ids) != len(images):
        raise UserError(f"There are {len(images)} images and {len(ids)} ids; give each image one.")
    numbers = torch.tensor(list(range(len(images)) if ids is None else ids), device=images.device)
    with classifier.session(images, seed):
        found = []
        for count, stream in zip(counts, streams, strict=True):
            keys = noise.keys(seed, numbers, torch.full_like(numbers, stream))
            pairs = zip(images, keys, strict=True)
            found.append(
                torch.stack([_count(classifier, image, key, sigma, count, batch_size) for image, key in pairs])
            )
    return found


def _count(classifier: Classifier, image: Tensor, key: Tensor, sigma: float, count: int, batch_size: int) -> Tensor:
    """`[K]` int64 of one image."""
    votes = None
    for start in range(0, count, batch_size):
        draws = torch.arange(start, min(start + batch_size, count), device=image.device)
        shift = noise.normal(key.expand(len(draws)), draws, image.shape).to(image)
        logits = classifier.judge(image + sigma * shift)
        said = logits.argmax(1).bincount(minlength=logits.shape[1]).cpu()
        votes = said if votes is None else votes + said
    assert votes is not None
    return votes


def _check(sigma: float, alpha: float, n: int, batch_size: int) -> None:
    if not 0 < sigma < math.inf:
        raise UserError(f"sigma must be a positive number, not {sigma}.")
    if not 0 < alpha < 0.5:
        raise UserError(f"alpha is a chance of being wrong, above 0 and below 0.5, not {alpha}.")
    if n < 1 or batch_size < 1:
        raise UserError("n, n0 and batch_size count copies of an image, so each must be at least 1.")
