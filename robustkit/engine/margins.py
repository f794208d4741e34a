"""The leads of the true class over the likely wrong classes, and their gradients, from one query."""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.classifier.memory import in_parts
from robustkit.classifier.session import Session
from robustkit.primitives import losses
from robustkit.primitives.measure import Measure
from robustkit.primitives.protocol import Attack, MultiGradientAttack, Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rows import padded


@dataclass(frozen=True)
class Margins(MultiGradientAttack):
    """One query for the lead of each likely wrong class; it attacks nothing.

    Args:
        measure: what it is for; it says how many classes, the likeliest.
    """

    _: KW_ONLY
    measure: Measure

    norms = ("Linf", "L2", "L1")
    in_full_precision = True  # its leads are compared with those of the unmodified network

    @property
    def cost(self) -> TrialCost:
        return TrialCost(1, self.measure.classes)

    def init(self, trials: Trials) -> State:
        return begin(trials, trials.x)

    def objectives(self, logits: Tensor, trials: Trials) -> Tensor:
        """`[B, C]` logits of the likeliest wrong classes, the likeliest first, less the true class's."""
        y = trials.y.unsqueeze(1)
        return (logits - logits.gather(1, y)).gather(1, self.likeliest(logits, trials.y))

    def likeliest(self, logits: Tensor, y: Tensor) -> Tensor:
        """`[B, C]` the measured classes, the likeliest first."""
        return losses.wrong_classes(logits, y, self.measure.classes)

    def step(self, state: State, seen: Seen) -> State:
        return state


def gradient_at(session: Session, attack: Attack, trials: Trials) -> Tensor:
    """`[n, *S]` the gradient of an attack's loss at the clean images of some trials."""
    return seen_once(session, attack, begin(trials, trials.x)).grad


def seen_once(session: Session, attack: Attack, state: State) -> Seen:
    """The answer to one query of each row; in parts if memory is short."""
    numbers = torch.arange(len(state), device=state.done.device)
    return in_parts(lambda rows: _at_once(session, attack, state.take(rows)), numbers)


def _at_once(session: Session, attack: Attack, state: State) -> Seen:
    """The answer in a batch of one of few sizes, because each new size is compared first."""
    count = len(state)
    size = session.sizes.fit(count, max(count, session.sizes.tile), session.search.kind_of(attack))
    numbers = torch.arange(count, device=state.done.device)
    return session.query(attack, state.take(padded(numbers, size))).take(numbers)
