"""Boundary Attack: a random walk along the boundary, on the side of the errors, with small steps towards the image.

Brendel, Rauber & Bethge 2018, arXiv:1712.04248, algorithm 2. Ours differs: both step sizes change after every answer,
by the factors at which the wanted shares of errors balance, where the authors compare counts over many steps; the walk
begins at the boundary; points that the box cut short are taken only if they are nearer than the last one.
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

_TOLERANCE = 1e-3  # of the first search: the walk will leave the point anyway
_HALF, _QUARTER = 1, 3  # failures that undo one success: the shares of errors that are aimed at are 1/2 and 1/4
_LONGEST = 1.0  # of both steps, in units of the distance


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
        check_every: proposals after which one is also queried before its step towards the image.
        adaptation: factor by which a step shrinks when it fails; after an error it grows as often as makes up for one
            failure sideways, and for three inwards.
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
        x, stepped, looked = state.trial.x, state.phase == STEP, state.phase == SPHERE
        started = error & (state.phase == START)
        found = bisected(state, error, started, _TOLERANCE)
        nearer = self.ball.distance(x, state.query) < self.ball.distance(x, state.at)
        at = torch.where(along(stepped & error & nearer, x), state.query, state.at)
        at = torch.where(along(found.arrived, x), between("L2", x, found.end, found.high), at)
        # As many proposals as `check_every` say both what the sphere and what the step alone would have led to.
        moves = state.moves + (stepped | (looked & ~error))
        next_one = stepped | found.arrived | (looked & ~error)
        phase = torch.where(next_one, torch.where(moves % self.check_every == 0, SPHERE, STEP), state.phase)
        phase = phase.masked_fill(looked & error, STEP).masked_fill(started, BISECT)
        state = replace(
            state, phase=phase, end=found.end, low=found.low, high=found.high, at=at, moves=moves,
            sideways=self._adapted(state.sideways, looked, error, _HALF),
            inward=self._adapted(state.inward, stepped, error, _QUARTER),
        )  # fmt: skip
        return replace(state, query=self._query(state))

    def _adapted(self, length: Tensor, asked: Tensor, error: Tensor, failures: int) -> Tensor:
        """`failures` wrong steps undo the growth after one right step."""
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
        """That point, moved towards the image."""
        x, sphere = state.trial.x, self._on_sphere(state)
        way, wanted = sphere - x, length(state.at - x) * (1 - state.inward)
        return (x + way * along(wanted / length(way), x)).clamp(0, 1)
