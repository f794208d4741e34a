"""How good an epoch is: accuracy on validation images, clean and under the worst of two attacks."""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.engine.attack_tensors import attack
from robustkit.errors import UserError
from robustkit.primitives import registry
from robustkit.primitives.protocol import Attack

from .parallel import ALONE, Team


@dataclass(frozen=True)
class ValidationScore:
    """Shares of validation images that are classified correctly."""

    clean: float
    ce: float  # under the attack on cross-entropy alone
    worst: float  # under that and the attack on the margin

    @property
    def gap(self) -> float:
        """How much more robust cross-entropy alone makes the network look: masked gradients, if it is large."""
        return self.ce - self.worst

    def better_than(self, other: "ValidationScore") -> bool:
        """Whether it withstands more, or as much with fewer errors on clean images."""
        return (self.worst, self.clean) > (other.worst, other.clean)


class Verdicts(NamedTuple):
    """For each image whether it is classified correctly; `[N]` bool on the CPU."""

    clean: Tensor
    ce: Tensor  # still so under the attack on cross-entropy
    worst: Tensor  # and under the one on the margin


@dataclass(frozen=True)
class Judge:
    """Judges networks on images set aside.

    Args:
        x: `[N, *S]` validation images in [0, 1]; never test images.
        y: `[N]` their classes.
        specification: a gradient attack that takes a `loss`, such as "pgd:steps=20".
        norm: of the threat.
        eps: its radius; with 0, only clean images are looked at.
        seed: of the attacks.
        team: processes that have the same network and images; each judges its share, with the verdicts of one alone.

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
        _ = self._attacks

    @property
    def chance(self) -> float:
        """Accuracy of saying the commonest class every time."""
        return self.y.bincount().max().item() / len(self.y)

    def level(self, network: nn.Module) -> ValidationScore:
        """Accuracies of a network that takes pixels in [0, 1]; it is left as it was."""
        if self.eps == 0:
            right, _ = self.team.added(self._right(network), 0)
            return ValidationScore(*[right / len(self.y)] * 3)
        return ValidationScore(*(int(right.sum()) / len(self.y) for right in self.verdicts(network)))

    def verdicts(self, network: nn.Module) -> Verdicts:
        """What the two attacks leave standing, the second asked only about what the first left."""
        classifier, (ce, margin) = Classifier(network, name="validation"), self._attacks
        with warnings.catch_warnings():
            # About a model that is no classifier yet, or no longer one, there is nothing to warn of here.
            warnings.simplefilter("ignore")
            clean, kept = self._attacked(classifier, ce, self.x, self.y)
            left, worst = kept.nonzero().flatten(), kept.clone()
            if len(left):
                rows = left.to(self.x.device)
                worst[left] = self._attacked(classifier, margin, self.x[rows], self.y[rows])[1]
        return Verdicts(clean, kept, worst)

    def _attacked(self, classifier: Classifier, method: Attack, x: Tensor, y: Tensor) -> Tensor:
        """`[2, n]` bool on the CPU: whether each image is classified correctly, and still so under an attack."""
        own, found = self.team.own(len(y)), torch.zeros(2, len(y))
        if len(y[own]):
            seen = attack(classifier, x[own], y[own], method, seed=self.seed, numbers=range(len(y))[own])
            found[:, own] = torch.stack([seen.clean_correct, seen.clean_correct & ~seen.success]).float()
        return self.team.total(found.to(x.device)).cpu().bool()

    def _right(self, network: nn.Module) -> int:
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

    @property
    def _attacks(self) -> tuple[Attack, Attack]:
        return pair_of(self.specification, self.norm, self.eps)


def pair_of(specification: str, norm: str, eps: float | str) -> tuple[Attack, Attack]:
    """The attack that chooses epochs, on cross-entropy and on the margin.

    Raises:
        UserError: it takes no `loss`, or there is none such.
    """
    name, values = registry.parsed(specification)
    base = registry.classes().get(name)
    if base is None or "loss" not in registry.parameters(base):
        raise UserError(f"Epochs are chosen by a gradient attack that takes a loss, such as pgd:steps=20, not {name}.")
    ce, margin = (
        f"{name}:{','.join(f'{key}={value}' for key, value in {**values, 'loss': loss}.items())}"
        for loss in ("ce", "margin")
    )
    return registry.build(ce, norm, eps), registry.build(margin, norm, eps)
