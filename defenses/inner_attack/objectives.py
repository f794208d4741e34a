"""What a fine-tuning minimizes: a loss of clean and adversarial images, and what the inner attack maximizes for it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.errors import UserError, unknown

Network = Callable[[Tensor], Tensor]
AttackObjective = Callable[[Tensor], Tensor]  # logits [B, K] -> [B]


class Branches(NamedTuple):
    """The network for clean and for adversarial images: the same one twice unless BatchNorm is split."""

    clean: Network
    adversarial: Network


class BatchLoss(NamedTuple):
    """The loss of one batch."""

    loss: Tensor  # one number, the mean over the batch
    logits: Tensor  # [B, K] of the adversarial images, or of the clean ones where nothing is attacked


@dataclass(frozen=True)
class Objective(ABC):
    """Base of all objectives of a training."""

    beta: float = 0.0

    @property
    def uses_attack(self) -> bool:
        """Whether it learns from adversarial images."""
        return True

    @property
    def needs_clean_logits(self) -> bool:
        """Whether the attack needs the logits of the clean images."""
        return False

    @property
    def has_clean_term(self) -> bool:
        """Whether clean images have a term of their own beside the adversarial ones."""
        return False

    def attack_objective(self, clean_logits: Tensor) -> AttackObjective | None:
        """What the attack maximizes; None keeps the attack's own loss, on hard labels."""
        return None

    @abstractmethod
    def batch_loss(self, branches: Branches, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> BatchLoss:
        """The loss of a batch.

        Args:
            branches: the network in train mode.
            x: `[B, *S]` clean images.
            x_adv: `[B, *S]` the adversarial ones.
            y: `[B]` true classes.
            smoothing: label smoothing in torch's convention.
        """


class CleanLoss(Objective):
    """Cross-entropy of clean images: the control."""

    @property
    def uses_attack(self) -> bool:
        return False

    def batch_loss(self, branches: Branches, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> BatchLoss:
        logits = branches.adversarial(x)
        return BatchLoss(F.cross_entropy(logits, y, label_smoothing=smoothing), logits)


class AT(Objective):
    """Cross-entropy of adversarial images. Madry et al. 2018, arXiv:1706.06083."""

    def batch_loss(self, branches: Branches, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> BatchLoss:
        logits = branches.adversarial(x_adv)
        return BatchLoss(F.cross_entropy(logits, y, label_smoothing=smoothing), logits)


class TRADES(Objective):
    """Clean cross-entropy plus `beta` times the divergence of adversarial from clean predictions.

    Zhang et al. 2019, arXiv:1901.08573. Only the labels of the clean term are smoothed. Ours differs: an attack with a
    random start keeps it; one that starts at the clean image starts from the paper's noise, clipped to [0, 1].
    """

    @property
    def needs_clean_logits(self) -> bool:
        return True

    @property
    def has_clean_term(self) -> bool:
        return True

    def attack_objective(self, clean_logits: Tensor) -> AttackObjective:
        return lambda logits: divergence(logits, clean_logits)

    def batch_loss(self, branches: Branches, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> BatchLoss:
        clean, adversarial = branches.clean(x), branches.adversarial(x_adv)
        robust_term = divergence(adversarial, clean).mean()
        return BatchLoss(F.cross_entropy(clean, y, label_smoothing=smoothing) + self.beta * robust_term, adversarial)


class MART(Objective):
    """Boosted cross-entropy of adversarial images plus `beta` times a divergence.

    Wang et al. 2020, "Improving adversarial robustness requires revisiting misclassified examples", ICLR. The weight of
    an image's divergence is the probability of its wrong classes on the clean image. Only the labels of the
    cross-entropy are smoothed. Ours differs: logarithms are exact, where the authors' code has `log(1.0001 - p)`, which
    ends at -9.2; and the attack has its own start, not noise of 1e-3.
    """

    @property
    def has_clean_term(self) -> bool:
        return True

    def batch_loss(self, branches: Branches, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> BatchLoss:
        clean, adversarial = branches.clean(x), branches.adversarial(x_adv)
        cross_entropy = F.cross_entropy(adversarial, y, label_smoothing=smoothing)
        boosted = cross_entropy - _log_not_likeliest_wrong(adversarial, y).mean()
        wrong = 1 - clean.softmax(1).gather(1, y[:, None]).squeeze(1)
        return BatchLoss(boosted + self.beta * (divergence(adversarial, clean) * wrong).mean(), adversarial)


def maximized(objective: Objective, clean: Network, x: Tensor) -> AttackObjective | None:
    """What an attack on the images `x` `[B, *S]` maximizes; None keeps its own loss."""
    if not objective.needs_clean_logits:
        return None
    with torch.no_grad():
        return objective.attack_objective(clean(x))


def build_objective(text: str) -> Objective:
    """The objective of "clean", "at", "trades:6" or "mart:5".

    Raises:
        UserError: there is no such objective, or its weight is not a positive number.
    """
    name, _, weight = text.strip().lower().partition(":")
    if name not in _KINDS:
        raise unknown("objective", name, _KINDS)
    kind, default = _KINDS[name]
    try:
        beta = float(weight) if weight else default
    except ValueError:
        beta = -1.0
    if (weight and not default) or not 0 <= beta < float("inf"):
        raise UserError(f"{text!r} is not an objective; write clean, at, trades:6 or mart:5.")
    return kind(beta)


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(softmax(target) || softmax(logits)) `[B]`, from logits `[B, K]` both."""
    # Written in logarithms: a probability that underflows to 0 would make the gradient in the target NaN.
    log_target = target.log_softmax(1)
    return (log_target.exp() * (log_target - logits.log_softmax(1))).sum(1)


def _log_not_likeliest_wrong(logits: Tensor, y: Tensor) -> Tensor:
    """`log(1 - max_{j != y} p_j)` `[B]`, without the rounding error of `1 - p`."""
    likeliest_wrong = logits.scatter(1, y[:, None], -torch.inf).argmax(1, keepdim=True)
    return logits.scatter(1, likeliest_wrong, -torch.inf).logsumexp(1) - logits.logsumexp(1)


_KINDS: dict[str, tuple[type[Objective], float]] = {
    "clean": (CleanLoss, 0.0),
    "at": (AT, 0.0),
    "trades": (TRADES, 6.0),
    "mart": (MART, 5.0),
}
