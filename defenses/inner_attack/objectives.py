"""What a fine-tuning minimises: a loss of clean and adversarial images, and what the inner attack climbs."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.errors import UserError, unknown

Network = Callable[[Tensor], Tensor]
# Logits [B, K] -> [B]; what the attack climbs in place of its own loss.
Climb = Callable[[Tensor], Tensor]


class Asked(NamedTuple):
    """A network as clean and as adversarial images meet it: two where BatchNorm is split, else one."""

    clean: Network
    adversarial: Network


class Learnt(NamedTuple):
    """What one batch says."""

    loss: Tensor  # one number, the mean over the batch
    logits: Tensor  # [B, K] of the images attacked, of the clean ones where none are


@dataclass(frozen=True)
class Objective(ABC):
    """Base of all objectives."""

    beta: float = 0.0

    @property
    def attacks(self) -> bool:
        """Whether it needs adversarial images."""
        return True

    @property
    def asks_clean(self) -> bool:
        """Whether the attack needs the clean logits."""
        return False

    @property
    def learns_clean(self) -> bool:
        """Whether clean images have a term of their own beside the adversarial ones."""
        return False

    def climb(self, clean: Tensor) -> Climb | None:
        """What the attack climbs, given the clean logits; None leaves the attack's own loss, on hard labels."""
        return None

    @abstractmethod
    def learnt(self, ask: Asked, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> Learnt:
        """The loss of a batch.

        Args:
            ask: the network in train mode.
            x: `[B, *S]` clean images.
            x_adv: `[B, *S]` the same, attacked.
            y: `[B]` true classes.
            smoothing: of the labels, in torch's convention.
        """

    def loss(self, network: Network, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> Tensor:
        """The same of a network without branches, the loss alone."""
        return self.learnt(Asked(network, network), x, x_adv, y, smoothing).loss


class CleanLoss(Objective):
    """Cross-entropy of clean images: the control."""

    @property
    def attacks(self) -> bool:
        return False

    def learnt(self, ask: Asked, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> Learnt:
        logits = ask.adversarial(x)
        return Learnt(F.cross_entropy(logits, y, label_smoothing=smoothing), logits)


class AT(Objective):
    """Cross-entropy of adversarial images. Madry et al. 2018, arXiv:1706.06083."""

    def learnt(self, ask: Asked, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> Learnt:
        logits = ask.adversarial(x_adv)
        return Learnt(F.cross_entropy(logits, y, label_smoothing=smoothing), logits)


class TRADES(Objective):
    """Clean cross-entropy plus `beta` times the divergence of adversarial from clean predictions.

    Zhang et al. 2019, arXiv:1901.08573. Labels are smoothed in the clean term alone.
    """

    @property
    def asks_clean(self) -> bool:
        return True

    @property
    def learns_clean(self) -> bool:
        return True

    def climb(self, clean: Tensor) -> Climb:
        return lambda logits: divergence(logits, clean)

    def learnt(self, ask: Asked, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> Learnt:
        clean, adversarial = ask.clean(x), ask.adversarial(x_adv)
        apart = divergence(adversarial, clean).mean()
        return Learnt(F.cross_entropy(clean, y, label_smoothing=smoothing) + self.beta * apart, adversarial)


class MART(Objective):
    """Boosted cross-entropy of adversarial images plus `beta` times a divergence, weighted by doubt on clean ones.

    Wang et al. 2020, "Improving adversarial robustness requires revisiting misclassified examples", ICLR. Labels are
    smoothed in the cross-entropy alone.
    """

    @property
    def learns_clean(self) -> bool:
        return True

    def learnt(self, ask: Asked, x: Tensor, x_adv: Tensor, y: Tensor, smoothing: float) -> Learnt:
        clean, adversarial = ask.clean(x), ask.adversarial(x_adv)
        boosted = F.cross_entropy(adversarial, y, label_smoothing=smoothing) - _not_the_likeliest(adversarial, y).mean()
        doubt = 1 - clean.softmax(1).gather(1, y[:, None]).squeeze(1)
        return Learnt(boosted + self.beta * (divergence(adversarial, clean) * doubt).mean(), adversarial)


def objective(text: str) -> Objective:
    """The objective of "clean", "at", "trades:6" or "mart:5".

    Raises:
        UserError: there is no such objective, or its weight is no positive number.
    """
    name, _, weight = text.strip().lower().partition(":")
    if name not in _KINDS:
        raise unknown("objective", name, _KINDS)
    kind, usual = _KINDS[name]
    try:
        beta = float(weight) if weight else usual
    except ValueError:
        beta = -1.0
    if (weight and not usual) or not 0 <= beta < float("inf"):
        raise UserError(f"{text!r} is no objective; write clean, at, trades:6 or mart:5.")
    return kind(beta)


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(softmax(target) || softmax(logits)) `[B]`, from logits `[B, K]` both."""
    # Written in logarithms: a probability that underflows to 0 would make the gradient in the target NaN.
    log_target = target.log_softmax(1)
    return (log_target.exp() * (log_target - logits.log_softmax(1))).sum(1)


def _not_the_likeliest(logits: Tensor, y: Tensor) -> Tensor:
    """`log(1 - max_{j != y} p_j)` `[B]`, without the rounding of `1 - p`."""
    other = logits.scatter(1, y[:, None], -torch.inf).argmax(1, keepdim=True)
    return logits.scatter(1, other, -torch.inf).logsumexp(1) - logits.logsumexp(1)


_KINDS: dict[str, tuple[type[Objective], float]] = {
    "clean": (CleanLoss, 0.0),
    "at": (AT, 0.0),
    "trades": (TRADES, 6.0),
    "mart": (MART, 5.0),
}
