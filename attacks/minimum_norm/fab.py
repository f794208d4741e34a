"""FAB: steps to the linearised decision boundary, pulled back towards the image; it looks for the nearest error.

Croce & Hein 2020, arXiv:1907.02044, algorithm 1. Ours differs: a point beyond the boundary is found by the query that
also brings the next gradient, where the authors' code asks once more; a trial ends at the first error inside the ball.
"FAB-T", its targeted form, is targets=9 and needs one gradient per query instead of one per class.
Bad at: models that mask gradients, and networks of many classes unless `targets` is set.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives.hyperplane import to_hyperplane
from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import (
    MultiGradientAttack,
    MultiGradientSeen,
    Seen,
    State,
    TrialCost,
    Trials,
)
from robustkit.primitives.rows import along

from .._starts import first_query
from ._margins import class_margins, nearest_boundary

_SHORTEST = 1e-8  # floor of a length that is divided by


@dataclass(frozen=True)
class FabState(NearestState):
    """The state of one trial."""

    iterations: Tensor  # [B] int64 steps to the boundary so far
    retreated: Tensor  # [B] bool, the query lies on the way back from an error, and the next one is a step from there


@dataclass(frozen=True)
class FAB(MultiGradientAttack):
    """Fast adaptive boundary attack.

    Args:
        steps: steps to the boundary per trial; each takes one query, or two where it ends in an error.
        classes: how many of the likeliest wrong classes an untargeted trial linearises, each for one backward pass.
        overshoot: length of a step in units of the way to the boundary; eta in the paper.
        pull: largest share of the step that starts from the image; alpha_max in the paper.
        retreat: share of the way from the image to an error at which the next step begins; beta in the paper.
    """

    _: KW_ONLY
    steps: int = 100
    classes: int = 9
    overshoot: float = 1.05
    pull: float = 0.1
    retreat: float = 0.9

    norms = ("Linf", "L2", "L1")
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "classes")
        self.at_least(0.0, "overshoot", "pull", "retreat")

    @property
    def cost(self) -> TrialCost:
        queries = 2 * self.steps
        return TrialCost(queries + 1, queries * (1 if self.targets else self.classes))

    def init(self, trials: Trials) -> State:
        return FabState(
            **vars(begin_nearest(trials, first_query(self.ball, trials))),
            iterations=torch.zeros_like(trials.y),
            retreated=torch.zeros_like(trials.y, dtype=torch.bool),
        )

    def objectives(self, logits: Tensor, trials: Trials) -> Tensor:
        """Margins of wrong classes over the true one: of the class aimed at, or of the likeliest ones."""
        return class_margins(logits, trials, 1 if self.targets else self.classes)

    def step(self, state: State, seen: Seen) -> State:
        assert isinstance(state, FabState)
        assert isinstance(seen, MultiGradientSeen)
        x, query = state.trial.x, state.query
        found = nearest(state, seen.label, self.ball)
        done = state.iterations >= self.steps
        error = found.error & ~state.retreated
        moved = torch.where(along(error, x), x + self.retreat * (query - x), self._moved(x, query, seen))
        return FabState(
            trial=state.trial, query=torch.where(along(done, x), found.or_else(query), moved),
            queries=state.queries + 1, done=done, iterations=state.iterations + ~error, retreated=error,
            nearest=found.point, distance=found.distance,
        )  # fmt: skip

    def _moved(self, x: Tensor, query: Tensor, seen: MultiGradientSeen) -> Tensor:
        """One step from `query`, and one from the image, to the nearest linearised boundary; then their mean."""
        norm, (loss, grad) = self.ball.norm, nearest_boundary(seen, self.ball)
        there = loss + (grad * (x - query)).flatten(1).sum(1)  # the linearised margin at the image
        both = to_hyperplane(norm, torch.cat([query, x]), torch.cat([grad, grad]), -torch.cat([loss, there]))
        here, away = both[: len(x)], both[len(x) :]
        near, far = (way.flatten(1).norm(p=self.ball.order, dim=1).clamp(min=_SHORTEST) for way in (here, away))
        share = along((near / (near + far)).clamp(max=self.pull), x)
        ends = query + self.overshoot * here, x + self.overshoot * away
        return (ends[0] * (1 - share) + ends[1] * share).clamp(0, 1)
