"""One attack on some images: what the model said before, where the attack got, and what the model says there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from robustkit.classifier.access import is_metered, only_labels
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.sanity_checks import looks_like_probabilities
from robustkit.engine.attack_tensors import attack
from robustkit.primitives.mask import Mask, masked_name
from robustkit.primitives.threat import ball
from robustkit.statistics.randomized_smoothing import ABSTAINS

Outcome = Literal["broken", "robust", "lost in rounding", "clean-wrong", "already the target", "abstains"]


@dataclass(frozen=True)
class AttackChoice:
    """The attack, its threat model, and how it is run."""

    method: str  # such as "pgd:steps=40"
    norm: str
    eps: str
    target: int | None
    batch_size: int
    seed: int
    progress: bool | None
    mask: Mask | None = None

    @property
    def norm_label(self) -> str:
        """The norm, with the label of the mask if there is one."""
        return masked_name(self.norm, self.mask)


class Opinion(NamedTuple):
    """What the unmodified model says about images."""

    labels: Tensor  # [N] int64, -1 where it abstains
    # [N, K], or shares of a randomized model's votes; None if it says labels only, or is a server whose scores may be
    # anything.
    probabilities: Tensor | None

    def confidence(self, row: int, label: int) -> float | None:
        """The probability of a class, or of the likeliest for -1; None where none is said."""
        if self.probabilities is None:
            return None
        return float(self.probabilities[row, label] if label >= 0 else self.probabilities[row].max())


class Attempt(NamedTuple):
    """What an attack did to images."""

    y: Tensor  # [N] int64 labels
    clean: Opinion
    x_adv: Tensor  # [N, *S] float32; the image itself where it was not attacked
    outcomes: list[Outcome]
    queries: list[int]
    distances: list[float]  # of the points, or of the parameters that they were rendered with


def attempt(
    classifier: Classifier, x: Tensor, labels: Sequence[int | None], numbers: Sequence[int], choice: AttackChoice
) -> Attempt:
    """Attack every image that the model classifies as its label says.

    Args:
        classifier: the model.
        x: `[N, *S]` images.
        labels: their classes; None takes what the model predicts.
        numbers: of the images among all, which name their noise.
        choice: the attack.
    """
    clean = opinion(classifier, x, numbers, choice.seed)
    of_clean = zip(labels, clean.labels.tolist(), strict=True)
    y = torch.tensor([predicted if label is None else label for label, predicted in of_clean], device="cpu")
    outcomes: list[Outcome] = [
        _before(*pair, choice.target) for pair in zip(clean.labels.tolist(), y.tolist(), strict=True)
    ]
    rows = [row for row, outcome in enumerate(outcomes) if outcome == "robust"]
    return attacked(classifier, x, Attempt(y, clean, x.clone(), outcomes, *_zeros(len(x))), rows, numbers, choice)


def attacked(
    classifier: Classifier,
    x: Tensor,
    before: Attempt,
    rows: Sequence[int],
    numbers: Sequence[int],
    choice: AttackChoice,
) -> Attempt:
    """The attempt after one more attack on some of its images."""
    if not rows:
        return before
    x_adv, outcomes, queries = before.x_adv.clone(), list(before.outcomes), list(before.queries)
    threat, distances = ball(choice.norm, choice.eps), list(before.distances)
    targets = None if choice.target is None else torch.full((len(rows),), choice.target, device="cpu")
    result = attack(
        classifier, x[rows], before.y[rows], choice.method, eps=choice.eps, norm=choice.norm, mask=choice.mask,
        target=targets, batch_size=choice.batch_size, seed=choice.seed, numbers=[numbers[row] for row in rows],
        progress=choice.progress,
    )  # fmt: skip
    x_adv[rows] = result.x_adv.to(x_adv)
    away = threat.distance(x[rows], result.parameters if threat.renders else x_adv[rows]).tolist()
    for row, success, spent, far in zip(rows, result.success.tolist(), result.queries.tolist(), away, strict=True):
        outcomes[row], queries[row], distances[row] = "broken" if success else "robust", spent, far
    return before._replace(x_adv=x_adv, outcomes=outcomes, queries=queries, distances=distances)


def with_confidence(label: str, confidence: float | None) -> str:
    """A class for display, with its probability where the model says one."""
    return label if confidence is None else f"{label} {confidence:.1%}"


def _zeros(count: int) -> tuple[list[int], list[float]]:
    return [0] * count, [0.0] * count


def opinion(classifier: Classifier, x: Tensor, numbers: Sequence[int], seed: int) -> Opinion:
    """What the unmodified model says about images, by a fresh forward pass."""
    images = classifier.place(x)
    with classifier.session(images, seed) as session:
        verdicts = session.clean_verdicts(images, numbers)
        scores = verdicts.scores.double()
        if session.rejects:
            return Opinion(verdicts.labels, None)
        if session.repeatability.randomized:
            scores = scores / scores.sum(1, keepdim=True)
        elif only_labels(classifier.model) or (
            is_metered(classifier.model) and not looks_like_probabilities(scores.exp())
        ):
            return Opinion(verdicts.labels, None)
        elif not classifier.probabilities and not looks_like_probabilities(scores):
            scores = scores.softmax(1)
    return Opinion(verdicts.labels, scores)


def _before(predicted: int, label: int, target: int | None) -> Outcome:
    """Why an image is not attacked; "robust" for one that is."""
    if predicted == ABSTAINS:
        return "abstains"
    if predicted != label:
        return "clean-wrong"
    return "already the target" if label == target else "robust"
