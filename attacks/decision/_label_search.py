"""The shared part of attacks on labels: the search for a first error, and the bisection from an error to the boundary.

Such an attack is a state machine. Each row is in one phase: START and BISECT are here, phases from 2 on belong to the
attack.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ball import NormName, finer
from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import Seen, State, Trials
from robustkit.primitives.queries import LabelOnlyAttack
from robustkit.primitives.rows import along

from .._phases import by_phase

START, BISECT = 0, 1


@dataclass(frozen=True)
class BoundaryState(NearestState):
    """The state of an attack that looks for a first error and then bisects to the boundary."""

    phase: Tensor  # [B] int64
    end: Tensor  # [B, *S] the error at the end of the bisection; the image before there is one
    low: Tensor  # [B] float64 share of the way from the image to `end` at which there is no error
    high: Tensor  # [B] float64 share of that way at which there is an error


@dataclass(frozen=True)
class LabelAttack(LabelOnlyAttack):
    """Base of the attacks that see labels only and look for the nearest error.

    Args:
        queries: forward passes per trial, at least 2.
    """

    _: KW_ONLY
    queries: int = 2000

    norms: ClassVar[tuple[NormName, ...]] = ("L2",)
    seeks_nearest = True

    def step(self, state: State, seen: Seen) -> State:
        assert isinstance(state, NearestState)
        closest = nearest(state, seen.label, self.ball)
        after = self.advance(state, closest.error)
        queries = state.queries + 1
        done = queries >= self.queries - 1
        query = torch.where(along(done, after.query), closest.or_else(after.query), after.query)
        return replace(after, query=query, queries=queries, done=done, nearest=closest.point, distance=closest.distance)

    @abstractmethod
    def advance(self, state: NearestState, error: Tensor) -> NearestState:
        """The state with the next query; `error` `[B]` says whether the last query was an error."""


class Bisected(NamedTuple):
    """The bisection between an image and an error after one answer."""

    end: Tensor  # as in the state
    low: Tensor
    high: Tensor
    arrived: Tensor  # [B] bool, `high` is near enough to the boundary


def searching(trials: Trials) -> dict[str, Any]:
    """The fields of a `BoundaryState` before the first query, which is the first random start."""
    zero = torch.zeros_like(trials.y)
    return {
        **vars(begin_nearest(trials, random_start(trials.x, trials.key, zero))),
        "phase": zero, "end": trials.x, "low": zero.double(), "high": zero.double() + 1,
    }  # fmt: skip


def random_start(x: Tensor, key: Tensor, draw: Tensor) -> Tensor:
    """Noise that may be an error: draw 0 is uniform in [0, 1], odd draws span a random range, even ones are 0 and 1.

    A network gives almost all noise of one contrast the same class, which may be the true one: on MNIST it is 8. Noise
    of random range includes nearly constant images of every grey. Black and white squares of random size are farthest
    from grey: a random network with two classes gave 8 % of such images its rarer class, and 0.9 % of uniform noise.
    """
    ends = noise.uniform(finer(key), draw, (2,)).to(x)
    uniform, first = noise.uniform(key, draw, x.shape[1:]).to(x), draw == 0
    low = torch.where(first, 0, torch.minimum(ends[:, 0], ends[:, 1]))
    high = torch.where(first, 1, torch.maximum(ends[:, 0], ends[:, 1]))
    grey = along(low, x) + along(high - low, x) * uniform
    squares = (_squares(uniform, ends[:, 0]) >= 0.5).to(x)
    return torch.where(along((draw > 0) & (draw % 2 == 0), x), squares, grey)


def _squares(values: Tensor, size: Tensor) -> Tensor:
    """`values` `[B, *S]` made constant in squares; their side is from 1 (`size` `[B]` of 0) to half an image (1)."""
    for axis in range(max(1, values.ndim - 2), values.ndim):
        length = values.shape[axis]
        side = (1 + size.square() * (length / 2)).long()  # small squares more often than large ones
        place = torch.arange(length, device=values.device) // side[:, None] * side[:, None]
        shape = [len(values), *(length if each == axis else 1 for each in range(1, values.ndim))]
        values = values.gather(axis, place.reshape(shape).expand_as(values))
    return values


def between(norm: NormName, x: Tensor, end: Tensor, share: Tensor) -> Tensor:
    """The point at a share `[B]` of the way from `x` to `end`; exactly `end` at 1.

    In Linf, all changes are clipped to that share of the largest change.
    """
    way = end - x
    if norm == "Linf":
        most = along(way.flatten(1).abs().amax(1) * share.to(x), x)
        return torch.where(way.abs() <= most, end, x + way.clamp(-most, most)).clamp(0, 1)
    return (end - along(1 - share, x).to(x) * way).clamp(0, 1)


def bisected(state: BoundaryState, error: Tensor, moved: Tensor, tolerance: float | Tensor) -> Bisected:
    """One step of the bisection between the image and `end`, which arrives when `high - low` is at most `tolerance`.

    In rows of `moved` `[B]` the query is an error, and a new bisection begins between the image and the query. The
    tolerance is one number or `[B]`.
    """
    halving, middle = state.phase == BISECT, (state.low + state.high) / 2
    low = torch.where(halving & ~error, middle, state.low)
    high = torch.where(halving & error, middle, state.high)
    arrived = halving & (high - low <= tolerance)
    end = torch.where(along(moved, state.query), state.query, state.end)
    return Bisected(end, low.masked_fill(moved, 0), high.masked_fill(moved, 1), arrived)


def next_query(state: BoundaryState, norm: NormName, later: Sequence[Callable[[], Tensor]]) -> Tensor:
    """Each row's query: a random start, the middle of the bisection, or the query of a later phase.

    `later[n]` makes the queries of phase n + 2; the last one also those of all following phases.
    """
    x, key, draw = state.trial.x, state.trial.key, state.queries + 1
    makers = (
        lambda: random_start(x, key, draw),
        lambda: between(norm, x, state.end, (state.low + state.high) / 2),
        *later,
    )
    return by_phase(state.phase.clamp(max=len(makers) - 1), makers)


def tangent(way: Tensor, move: Tensor, share: Tensor | float = 1.0) -> Tensor:
    """`[B, *S]` the part of `move` orthogonal to `way`, scaled to a `share` `[B]` of the length of `way`."""
    distance = length(way)
    outward = way / along(distance, way)
    move = move - along((move * outward).flatten(1).sum(1), way) * outward
    return move * along(share * distance / length(move), way)


def length(way: Tensor) -> Tensor:
    """`[B]` Euclidean lengths, never zero."""
    lengths: Tensor = way.flatten(1).norm(dim=1).clamp(min=1e-12)
    return lengths
