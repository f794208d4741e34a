"""Judge an epoch: accuracy on validation images, clean and under the worst of two attacks."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.engine.attack_tensors import attack
from robustkit.errors import UserError
from robustkit.primitives import ensembles, registry
from robustkit.primitives.protocol import Attack

from .team import ALONE, Team


@dataclass(frozen=True)
class ValidationScore:
    """Shares of validation images that are classified correctly."""

    clean: float
    ce: float  # under the attack on cross-entropy alone
    worst: float  # under that and the attack on the margin

    @property
    def gap(self) -> float:
        """How much more robust the network looks under cross-entropy alone; a large gap points to masked gradients."""
        return self.ce - self.worst

    def better_than(self, other: "ValidationScore") -> bool:
        """Whether the worst case is better, or equal with fewer errors on clean images."""
        return (self.worst, self.clean) > (other.worst, other.clean)


class Verdicts(NamedTuple):
    """For each image whether it is classified correctly; `[N]` bool on the CPU."""

    clean: Tensor
    ce: Tensor  # also under the attack on cross-entropy
    worst: Tensor  # also under both attacks


@dataclass(frozen=True)
class Judge:
    """Judges networks on held-out images.

    Args:
        x: `[N, *S]` validation images in [0, 1]; never test images.
        y: `[N]` their classes.
        specification: a gradient attack that takes a `loss`, such as "pgd:steps=20" or "mine.py:Climb".
        norm: of the threat.
        eps: its radius; with 0, only clean images are judged.
        seed: of the attacks.
        team: processes with the same network and images; each judges its share, and the verdicts do not depend on it.

    Raises:
        UserError: the attack takes no `loss`.
    """

    x: Tensor
    y: Tensor
    specification: str
    norm: str
    eps: float
    seed: int
    team: Team = ALONE

    def __post_init__(self) -> None:
        _ = self._attacks  # so that an attack that does not fit is met before any training

    @property
    def chance(self) -> float:
        """Accuracy of always predicting the most frequent class."""
        return self.y.bincount().max().item() / len(self.y)

    def score(self, network: nn.Module) -> ValidationScore:
        """Accuracies of a network that takes pixels in [0, 1]; it is not changed."""
        if self.eps == 0:
            correct, _ = self.team.sum_numbers(self._correct(network), 0)
            return ValidationScore(*[correct / len(self.y)] * 3)
        return ValidationScore(*(int(correct.sum()) / len(self.y) for correct in self.verdicts(network)))

    def verdicts(self, network: nn.Module) -> Verdicts:
        """The verdicts of both attacks; the second is run only on images that the first has not broken."""
        classifier, (ce, margin) = Classifier(network, name="validation"), self._attacks
        with warnings.catch_warnings():
            # Warnings about unusual models would be repeated at every epoch.
            warnings.simplefilter("ignore")
            clean, survived = self._attacked(classifier, ce, self.x, self.y)
            left, worst = survived.nonzero().flatten(), survived.clone()
            if len(left):
                rows = left.to(self.x.device)
                worst[left] = self._attacked(classifier, margin, self.x[rows], self.y[rows])[1]
        return Verdicts(clean, survived, worst)

    def _attacked(self, classifier: Classifier, method: Attack, x: Tensor, y: Tensor) -> Tensor:
        """`[2, n]` bool on the CPU: whether each image is classified correctly, before and after an attack."""
        own, verdicts = self.team.own(len(y)), torch.zeros(2, len(y), device="cpu")
        if len(y[own]):
            attacked = attack(classifier, x[own], y[own], method, seed=self.seed, numbers=range(len(y))[own])
            survived = attacked.clean_correct & ~attacked.success
            verdicts[:, own] = torch.stack([attacked.clean_correct, survived]).float()
        return self.team.sum_tensor(verdicts.to(x.device)).cpu().bool()

    def _correct(self, network: nn.Module) -> int:
        """How many images of this process's share are classified correctly."""
        own = self.team.own(len(self.y))
        x, y, classifier = self.x[own], self.y[own], Classifier(network, name="validation")
        if not len(y):
            return 0
        with classifier.session(x, self.seed) as session:
            logits = session.judge(classifier.place(x))
        if not bool(logits.isfinite().all()):
            raise UserError("The model returns NaN or infinite logits on validation images; check its weights.")
        return int((logits.argmax(1) == y.cpu()).sum())

    @cached_property
    def _attacks(self) -> tuple[Attack, Attack]:
        return judging_attacks(self.specification, self.norm, self.eps)


def judging_attacks(specification: str, norm: str, eps: float | str) -> tuple[Attack, Attack]:
    """The attack that chooses epochs, on cross-entropy and on the margin.

    Raises:
        UserError: there is no such attack, or it takes no `loss`.
    """
    name = registry.parsed(specification).name
    attack = None if ensembles.is_ensemble(name) else registry.build(specification, norm, eps)
    if attack is None or "loss" not in registry.parameters(type(attack)):
        raise UserError(f"Epochs are chosen by a gradient attack that takes a loss, such as pgd:steps=20, not {name}.")
    return replace(attack, loss="ce"), replace(attack, loss="margin")  # type: ignore[call-arg]
