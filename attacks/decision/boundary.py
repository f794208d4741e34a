"""Boundary Attack: a random walk along the boundary, on the side of the errors, with small steps towards the image.

Brendel, Rauber & Bethge 2018, arXiv:1712.04248, algorithm 2. Ours differs: both step sizes change after every answer by
factors with which they settle where 1/2 and 1/4 of the answers are errors, while the authors compare counts over many
steps; they begin at 0.1, those of foolbox at 0.01; the walk begins at the boundary; a point is taken only if it is
nearer than the last one (clipping to [0, 1] can move it away).
Bad at: targeted trials: they begin at noise, which is seldom of the target class.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from ._label_search import (
    BISECT,
    START,
    BoundaryState,
    LabelAttack,
    between,
    bisected,
    length,
    next_query,
    searching,
    tangent,
)

SPHERE, STEP = 2, 3

_TOLERANCE = 1e-3  # of the first bisection: the walk leaves the point anyway
_HALF, _QUARTER = 1, 3  # failures that undo the growth after one success, for shares of errors of 1/2 and 1/4
_LONGEST = 1.0  # longest steps, in units of the distance


@dataclass(frozen=True)
class BoundaryWalkState(BoundaryState):
    """The state of one trial."""

    at: Tensor  # [B, *S] the last error of the walk
    sideways: Tensor  # [B] length of the step along the sphere, in units of the distance; delta in the paper
    inward: Tensor  # [B] length of the step to the image, in units of the distance; epsilon in the paper
    moves: Tensor  # [B] int64 number of the proposal, which draws its noise


@dataclass(frozen=True)
class Boundary(LabelAttack):
    """Boundary attack in L2.

    Args:
        queries: forward passes per trial, at least 2.
        sideways: first length of the step along the sphere around the image, in units of the distance.
        inward: first length of the step towards the image, in units of the distance.
        check_every: one in so many proposals is also queried before its step towards the image.
        adaptation: after a query that is no error, the step is divided by it; after an error it is multiplied by it
            (the step sideways) or by its third power (the step inwards).
    """

    _: KW_ONLY
    queries: int = 5000
    sideways: float = 0.1
    inward: float = 0.1
    check_every: int = 5
    adaptation: float = 1.1

    norms = ("L2",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.share("sideways")
        self.share("inward")
        self.at_least(1, "check_every")
        self.at_least(1.0, "adaptation")

    def init(self, trials: Trials) -> BoundaryWalkState:
        zero = torch.zeros_like(trials.y)
        return BoundaryWalkState(
            **searching(trials), at=trials.x, sideways=zero.to(trials.x) + self.sideways,
            inward=zero.to(trials.x) + self.inward, moves=zero,
        )  # fmt: skip

    def advance(self, state: NearestState, error: Tensor) -> BoundaryWalkState:
        assert isinstance(state, BoundaryWalkState)
        x, stepped, on_sphere = state.trial.x, state.phase == STEP, state.phase == SPHERE
        started = error & (state.phase == START)
        search = bisected(state, error, started, _TOLERANCE)
        nearer = self.ball.distance(x, state.query) < self.ball.distance(x, state.at)
        at = torch.where(along(stepped & error & nearer, x), state.query, state.at)
        at = torch.where(along(search.arrived, x), between("L2", x, search.end, search.high), at)
        # Every `check_every`-th proposal is queried on the sphere first, and after its step only if that is an error.
        moves = state.moves + (stepped | (on_sphere & ~error))
        next_one = stepped | search.arrived | (on_sphere & ~error)
        phase = torch.where(next_one, torch.where(moves % self.check_every == 0, SPHERE, STEP), state.phase)
        phase = phase.masked_fill(on_sphere & error, STEP).masked_fill(started, BISECT)
        state = replace(
            state, phase=phase, end=search.end, low=search.low, high=search.high, at=at, moves=moves,
            sideways=self._adapted(state.sideways, on_sphere, error, _HALF),
            inward=self._adapted(state.inward, stepped, error, _QUARTER),
        )  # fmt: skip
        return replace(state, query=self._query(state))

    def _adapted(self, length: Tensor, asked: Tensor, error: Tensor, failures: int) -> Tensor:
        """The step length after an answer in rows of `asked`: `failures` failures undo the growth of one success."""
        grown, shrunk = length * self.adaptation**failures, length / self.adaptation
        return torch.where(asked, torch.where(error, grown, shrunk), length).clamp(max=_LONGEST)

    def _query(self, state: BoundaryWalkState) -> Tensor:
        return next_query(state, "L2", (lambda: self._on_sphere(state), lambda: self._proposal(state)))

    def _on_sphere(self, state: BoundaryWalkState) -> Tensor:
        """A point as far from the image as `at`, a random step along the sphere away."""
        x, way = state.trial.x, state.at - state.trial.x
        # No other draw of this key has the number: starts count up from 0.
        move = noise.normal(state.trial.key, -1 - state.moves, x.shape[1:]).to(x)
        move = tangent(way, move, state.sideways)
        return (x + (way + move) / along((1 + state.sideways.square()).sqrt(), x)).clamp(0, 1)

    def _proposal(self, state: BoundaryWalkState) -> Tensor:
        """The point of `_on_sphere`, moved towards the image."""
        x, sphere = state.trial.x, self._on_sphere(state)
        way, wanted = sphere - x, length(state.at - x) * (1 - state.inward)
        return (x + way * along(wanted / length(way), x)).clamp(0, 1)
