"""DeepFool: steps just beyond the nearest linearised decision boundary, until the class changes.

Moosavi-Dezfooli, Fawzi & Frossard 2016, arXiv:1511.04599, algorithm 2. Ours differs: the step is clipped to valid
images, and a trial can aim at a class. Steps to the nearest valid image beyond the boundary, as in FAB, give errors up
to 39 % farther away: they move other pixels further where some cannot move. A clipped step just stops short, and the
next one begins there.
Bad at: small distances, because it stops at the first error; DDN and FMN go on from there.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import MultiGradientAttack, MultiGradientSeen, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._starts import first_query
from ._margins import beyond_boundary, class_margins


@dataclass(frozen=True)
class DeepFool(MultiGradientAttack):
    """DeepFool in L2 or Linf.

    Args:
        steps: the most steps of a trial, which ends at the first error.
        classes: number of likeliest wrong classes that a step considers; each costs one backward pass.
        overshoot: how far a step goes beyond the boundary, as a share of the distance to it.
    """

    _: KW_ONLY
    steps: int = 50
    classes: int = 9
    overshoot: float = 0.02

    norms = ("L2", "Linf")
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "classes")
        self.at_least(0.0, "overshoot")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 2, (self.steps + 1) * (1 if self.targets else self.classes))

    def init(self, trials: Trials) -> NearestState:
        return begin_nearest(trials, first_query(self.ball, trials))

    def objectives(self, logits: Tensor, trials: Trials) -> Tensor:
        """Margins of wrong classes over the true one: of the class aimed at, or of the likeliest ones."""
        return class_margins(logits, trials, 1 if self.targets else self.classes)

    def step(self, state: State, seen: Seen) -> NearestState:
        assert isinstance(state, NearestState)
        assert isinstance(seen, MultiGradientSeen)
        closest = nearest(state, seen.label, self.ball)
        done = closest.error | (state.queries >= self.steps)
        query = torch.where(
            along(done, state.query),
            closest.or_else(state.query),
            beyond_boundary(self.ball, state.query, seen, self.overshoot),
        )
        return replace(
            state, query=query, queries=state.queries + 1, done=done, nearest=closest.point, distance=closest.distance
        )
