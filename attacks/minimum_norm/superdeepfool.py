"""SuperDeepFool: DeepFool, but each error is projected onto the line through the image along the gradient there.

Abdollahpoor, Abroshan & Moosavi-Dezfooli 2023, arXiv:2303.12481, algorithm 2, SDF(infinity, 1). The reason: at the
nearest error, the way from the image is parallel to the gradient. DeepFool and projections alternate until a projection
is itself an error; a bisection follows. Ours differs: the result is the nearest of all queried errors; the bisection
begins beyond the last projection, whose direction is the best one; steps are clipped to valid images; a trial can aim
at a class; from the first error on, DeepFool considers the likeliest wrong class alone.
Bad at: cost, as projections seldom cross a curved boundary, so that most trials use all of their steps.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import MultiGradientAttack, MultiGradientSeen, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._starts import first_query
from ._margins import SHORTEST, beyond_boundary, class_margins

_FARTHER = 1.25  # than the last projection, which may end in front of the boundary: where bisection begins


@dataclass(frozen=True)
class SuperDeepFoolState(NearestState):
    """The state of one trial."""

    points: Tensor  # [B] int64 points queried so far; one may be queried twice
    whole: Tensor  # [B] bool, the gradients of all classes are read; else that of the likeliest one, as at an error
    projected: Tensor  # [B] bool, the query is the projection of an error
    end: Tensor  # [B, *S] where bisection begins, on the other side of the boundary if all goes well
    halvings: Tensor  # [B] int64 queries of that bisection so far, -1 before it
    low: Tensor  # [B] share of the way at which there was no error
    high: Tensor  # [B] share of the way at which there was one


@dataclass(frozen=True)
class SuperDeepFool(MultiGradientAttack):
    """SuperDeepFool in L2.

    Args:
        steps: the most steps of a trial; a step of DeepFool and a projection are one each.
        classes: number of likeliest wrong classes that a step considers before the first error; each costs one backward
            pass.
        overshoot: how far a step of DeepFool goes beyond the boundary, as a share of the distance to it.
        bisections: queries of the bisection.
    """

    _: KW_ONLY
    steps: int = 30
    classes: int = 9
    overshoot: float = 0.02
    bisections: int = 10

    norms = ("L2",)
    seeks_nearest = True
    reads_all_gradients = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "classes")
        self.at_least(0, "bisections")
        self.at_least(0.0, "overshoot")

    @property
    def cost(self) -> TrialCost:
        points, all_classes = self.steps + 1, 1 if self.targets else self.classes
        return TrialCost(2 * points + self.bisections + 1, points * (1 + all_classes))

    def init(self, trials: Trials) -> SuperDeepFoolState:
        start = begin_nearest(trials, first_query(self.ball, trials))
        low = torch.zeros_like(start.distance).to(trials.x)
        none = torch.zeros_like(start.done)
        return SuperDeepFoolState(
            **vars(start), points=torch.zeros_like(trials.y), whole=~none, projected=none, end=trials.x,
            halvings=torch.full_like(trials.y, -1), low=low, high=low + 1,
        )  # fmt: skip

    def objectives(self, logits: Tensor, trials: Trials) -> Tensor:
        """Margins of wrong classes over the true one: of the class aimed at, or of the likeliest ones."""
        return class_margins(logits, trials, 1 if self.targets else self.classes)

    def gradients_read(self, state: State) -> Tensor:
        assert isinstance(state, SuperDeepFoolState)
        return torch.where(state.halvings >= 0, 0, torch.where(_reads_all(state), self.classes, 1))

    def step(self, state: State, seen: Seen) -> SuperDeepFoolState:
        assert isinstance(state, SuperDeepFoolState)
        assert isinstance(seen, MultiGradientSeen)
        x, query = state.trial.x, state.query
        closest = nearest(state, seen.label, self.ball)
        stepping = state.halvings < 0
        ends = stepping & ((closest.error & state.projected) | (state.points >= self.steps))
        reads_whole = stepping & ~ends & ~closest.error & ~state.whole & ~_aims(state) & closest.distance.isinf()
        projection = self._projection(x, query, seen)
        moved = torch.where(along(closest.error, x), projection, self._beyond(state, seen))

        middle = (state.low + state.high) / 2
        high = torch.where(~stepping & closest.error, middle, state.high)
        low = torch.where(~stepping & ~closest.error, middle, state.low)
        farther = (x + _FARTHER * (projection - x)).clamp(0, 1)
        end = torch.where(along(stepping & closest.error, x), farther, state.end)
        between = x + along((low + high) / 2, x) * (end - x)
        halvings = state.halvings + (ends | ~stepping)
        done = (halvings >= self.bisections) | ((halvings >= 0) & closest.distance.isinf())
        query = torch.where(along(stepping & ~ends, x), moved, between)
        query = torch.where(along(done, x), closest.or_else(state.query), query)
        return SuperDeepFoolState(
            trial=state.trial, query=torch.where(along(reads_whole, x), state.query, query), queries=state.queries + 1,
            done=done, nearest=closest.point, distance=closest.distance, points=state.points + ~reads_whole,
            whole=reads_whole, projected=closest.error, end=end, halvings=halvings, low=low, high=high,
        )  # fmt: skip

    def _beyond(self, state: SuperDeepFoolState, seen: MultiGradientSeen) -> Tensor:
        """The end of DeepFool's step, by the gradients that are read: of all classes, or of the likeliest one."""
        unread = ~_reads_all(state).unsqueeze(1) & (torch.arange(seen.losses.shape[1], device=seen.losses.device) > 0)
        read = replace(seen, losses=seen.losses.masked_fill(unread, torch.inf))  # their boundaries are never nearest
        return beyond_boundary(self.ball, state.query, read, self.overshoot)

    def _projection(self, x: Tensor, query: Tensor, seen: MultiGradientSeen) -> Tensor:
        """An error's projection onto the line from the image along the gradient of its class at the error."""
        grad = seen.grads[:, 0]  # the likeliest wrong class is the predicted one
        unit = grad / along(grad.flatten(1).norm(dim=1).clamp(min=SHORTEST), x)
        length = ((query - x) * unit).flatten(1).sum(1)
        return (x + along(length, x) * unit).clamp(0, 1)


def _reads_all(state: SuperDeepFoolState) -> Tensor:
    """`[B]` whether the gradients of all classes are read at the query, unless it is one of the bisection."""
    return state.whole & ~_aims(state)


def _aims(state: State) -> Tensor:
    """`[B]` whether a trial aims at one class, so that all gradients are the first one."""
    return (state.trial.loss_target >= 0) | (state.trial.target >= 0)
