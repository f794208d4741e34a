"""Certify tensors: the library's short way to a smoothed classifier."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from robustkit import limits
from robustkit.classifier import smoothing
from robustkit.classifier.classifier import Classifier, as_classifier
from robustkit.classifier.sanity_checks import changed_since_start, checked_images, checked_model
from robustkit.classifier.smoothing import Smoothing
from robustkit.errors import UserError
from robustkit.host.arguments import checked_arguments
from robustkit.statistics import randomized_smoothing
from robustkit.statistics.randomized_smoothing import Certified


@checked_arguments
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
        UserError: an argument is out of range, or the model is smoothed already or cannot be trusted: an answer depends
            on the other images of its batch, for example.
    """
    how = Smoothing(sigma, n=n, alpha=alpha)
    with _queried(model, x, how, seed, ids, batch_size) as (logits, images, numbers):
        votes = smoothing.estimation_votes(logits, images, numbers, how, seed, batch_size)
    return randomized_smoothing.predict(votes, alpha)


@checked_arguments
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
        UserError: an argument is out of range, or the model is smoothed already or cannot be trusted: an answer depends
            on the other images of its batch, for example.
    """
    how = Smoothing(sigma, n=n, n0=n0, alpha=alpha)
    with _queried(model, x, how, seed, ids, batch_size) as (logits, images, numbers):
        votes = smoothing.poll(logits, images, numbers, how, seed, batch_size)
    return votes.certified(how, x[0].numel())


@contextmanager
def _queried(
    model: nn.Module | Classifier, x: Tensor, how: Smoothing, seed: int, ids: Sequence[int] | None, batch_size: int
) -> Iterator[tuple[smoothing.Logits, Tensor, Tensor]]:
    """The logits of a model as a function, the images on its device and their numbers."""
    seed = limits.whole_seed(seed)
    if batch_size < 1:
        raise UserError("batch_size counts noisy copies of an image, so it must be at least 1.")
    classifier = as_classifier(model)
    if classifier.smoothing is not None:
        raise UserError(f"{classifier.name} is smoothed with sigma {classifier.smoothing.sigma:g} already; leave its "
                        "smoothing out, and give sigma here.")  # fmt: skip
    classifier = replace(classifier, smoothing=how)
    images = classifier.place(checked_images(x.detach(), classifier.bounds))
    if ids is not None and len(ids) != len(images):
        raise UserError(f"There are {len(images)} images and {len(ids)} ids; give each image one.")
    numbers = torch.tensor(list(range(len(images)) if ids is None else ids), device=images.device)
    with classifier.session(images, seed) as session:
        checked_model(classifier, session, images)  # its warnings are about gradients
        yield session.logits, images, numbers
        for problem in changed_since_start(classifier, session):
            raise UserError(problem)
