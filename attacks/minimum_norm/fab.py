"""FAB: seeks the nearest adversarial example by steps to the linearised boundary that are biased towards the image.

Croce & Hein 2020, arXiv:1907.02044, algorithm 1. Ours differs: one query gives both the label and the gradients for the
next step, where the authors' code makes two. Only an untargeted trial that has had an error queries the label alone
first: most of its steps end in an error, which needs none of the many gradients. A trial ends at the first error inside
the ball. "FAB-T", the targeted form, is targets=9 and needs one gradient per query instead of one per class.
Bad at: models that mask gradients, and networks with many classes unless `targets` is set.
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
    step_begins: Tensor  # [B] bool, a step begins at the query whatever its label; else only if it is no error


@dataclass(frozen=True)
class FAB(MultiGradientAttack):
    """Fast adaptive boundary attack.

    Args:
        steps: steps to the boundary per trial; each takes one or two queries.
        classes: number of likeliest wrong classes that an untargeted trial linearises; each costs one backward pass.
        overshoot: length of a step as a multiple of the distance to the boundary; eta in the paper.
        pull: largest weight of the step that starts from the image; alpha_max in the paper.
        retreat: after an error, the next step begins at this share of the way from the image to it; beta in the paper.
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
        gradients = queries if self.targets else (self.steps + 1) * self.classes  # of each step and the first error
        return TrialCost(queries + 1, gradients)

    @property
    def reads_all_gradients(self) -> bool:  # type: ignore[override]
        return self.targets > 0

    def init(self, trials: Trials) -> State:
        return FabState(
            **vars(begin_nearest(trials, first_query(self.ball, trials))),
            iterations=torch.zeros_like(trials.y),
            step_begins=torch.zeros_like(trials.y, dtype=torch.bool),
        )

    def objectives(self, logits: Tensor, trials: Trials) -> Tensor:
        """Margins of wrong classes over the true one: of the class aimed at, or of the likeliest ones."""
        return class_margins(logits, trials, 1 if self.targets else self.classes)

    def gradients_read(self, state: State) -> Tensor:
        assert isinstance(state, FabState)
        return torch.where(self._asks_label(state), 0, self.classes)

    def step(self, state: State, seen: Seen) -> State:
        assert isinstance(state, FabState)
        assert isinstance(seen, MultiGradientSeen)
        x, query = state.trial.x, state.query
        closest = nearest(state, seen.label, self.ball)
        done = state.iterations >= self.steps
        error, needs_gradients = closest.error & ~state.step_begins, self._asks_label(state) & ~closest.error
        moved = torch.where(along(error, x), x + self.retreat * (query - x), self._moved(x, query, seen))
        moved = torch.where(along(needs_gradients, x), query, moved)
        return FabState(
            trial=state.trial, query=torch.where(along(done, x), closest.or_else(query), moved),
            queries=state.queries + 1, done=done, iterations=state.iterations + ~(error | needs_gradients),
            step_begins=error | needs_gradients, nearest=closest.point, distance=closest.distance,
        )  # fmt: skip

    def _asks_label(self, state: FabState) -> Tensor:
        """`[B]` bool, only the label of the query is needed, no gradient."""
        if self.reads_all_gradients:
            return torch.zeros_like(state.done)
        return (state.distance.isfinite() & ~state.step_begins) | (state.iterations >= self.steps)

    def _moved(self, x: Tensor, query: Tensor, seen: MultiGradientSeen) -> Tensor:
        """`[B, *S]` weighted mean of the steps from `query` and from the image beyond the nearest boundary."""
        norm, (loss, grad) = self.ball.norm, nearest_boundary(seen, self.ball)
        there = loss + (grad * (x - query)).flatten(1).sum(1)  # the linearised margin at the image
        both = to_hyperplane(norm, torch.cat([query, x]), torch.cat([grad, grad]), -torch.cat([loss, there]))
        here, away = both[: len(x)], both[len(x) :]
        near, far = (way.flatten(1).norm(p=self.ball.order, dim=1).clamp(min=_SHORTEST) for way in (here, away))
        share = along((near / (near + far)).clamp(max=self.pull), x)
        ends = query + self.overshoot * here, x + self.overshoot * away
        return (ends[0] * (1 - share) + ends[1] * share).clamp(0, 1)
