"""The shared part of attacks on labels that walk along families of images, such as stronger and stronger blur.

The members of a family are numbered by a share: 0 is the image, 1 the member farthest away. With a radius, the walk
ends at the last member inside the ball. `steps` members of a family are queried, the nearest first; at the first error,
bisection follows between it and the member before it. Random families are walked one after another, each only as far
as the nearest error so far.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from robustkit.primitives.nearest import Nearest, NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import Seen, Trials
from robustkit.primitives.queries import LabelOnlyAttack
from robustkit.primitives.rows import along


@dataclass(frozen=True)
class WalkState(NearestState):
    """The state of one walk, or of several one after another."""

    draw: Tensor  # [B] int64 number of the family
    place: Tensor  # [B] int64 number of the queried member, from 1 to `steps`; that of the error during bisection
    halving: Tensor  # [B] int64 number of the bisection's query, from 1; 0 before there is an error
    low: Tensor  # [B] float64 share of a member that is no error
    high: Tensor  # [B] float64 share of a member that is an error, or of the last member
    most: Tensor  # [B] float64 share of the last member


@dataclass(frozen=True)
class Walk(LabelOnlyAttack):
    """Base of the attacks that walk along families of images.

    Args:
        queries: forward passes per trial, at least 2.
        steps: number of members of a family that are queried.
        halvings: queries of the bisection before the first error among them.
    """

    _: KW_ONLY
    queries: int = 120
    steps: int = 100
    halvings: int = 10

    seeks_nearest = True
    reach_halvings: ClassVar[int] = 24  # bisections that find the last member inside the ball; 24 are exact in fp32
    one_family: ClassVar[bool] = True  # nothing is random, so that a trial ends with its only family

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.at_least(0, "halvings")

    def family(self, trials: Trials, draw: Tensor) -> Tensor:
        """`[B, ...]` what `member` needs besides the image, such as random numbers."""
        return trials.x

    @abstractmethod
    def member(self, x: Tensor, family: Tensor, share: Tensor) -> Tensor:
        """`[B, *S]` the members at the shares `[B]`: exactly `x` at 0, and farther from it as the share grows."""

    def init(self, trials: Trials) -> WalkState:
        zero = torch.zeros_like(trials.y)
        start = begin_nearest(trials, trials.x)
        low = torch.zeros_like(start.distance)
        state = WalkState(
            **vars(start), draw=zero, place=zero + 1, halving=zero, low=low, high=low + 1, most=low + 1
        )  # fmt: skip
        family = self.family(trials, zero)
        state = replace(state, most=self._reach(trials.x, family, torch.full_like(low, self.ball.eps)))
        return replace(state, query=self.member(trials.x, family, self._share(state)))

    def step(self, state: WalkState, seen: Seen) -> WalkState:  # type: ignore[override]
        closest = nearest(state, seen.label, self.ball)
        queries = state.queries + 1
        after = self._after(state, closest)
        over = after.draw > state.draw
        done = (queries >= self.queries - 1) | state.done | (over if self.one_family else torch.zeros_like(over))
        family = self.family(state.trial, after.draw)
        # Without a second family the trial is over; the rest saves time and changes no row's value.
        if not self.one_family and bool(over.any()):
            radius = closest.distance.clamp(max=self.ball.eps)
            after = replace(after, most=torch.where(over, self._reach(state.trial.x, family, radius), after.most))
        query = self.member(state.trial.x, family, self._share(after))
        last = closest.or_else(state.query)
        return replace(
            after, query=torch.where(along(done, query), last, query), queries=queries, done=done,
            nearest=closest.point, distance=closest.distance,
        )  # fmt: skip

    def _after(self, state: WalkState, closest: Nearest) -> WalkState:
        """The state at the next member, or at the first one of the next family."""
        error, walking, middle = closest.error, state.halving == 0, (state.low + state.high) / 2
        before = (state.place - 1) / self.steps * state.most
        low = torch.where(walking, before, torch.where(error, state.low, middle))
        high = torch.where(walking, self._share(state), torch.where(error, middle, state.high))
        halving = torch.where(walking & ~error, 0, state.halving + 1)
        over = torch.where(walking & ~error, state.place >= self.steps, halving > self.halvings)
        place = torch.where(walking & ~error, state.place + 1, state.place)
        return replace(
            state, draw=state.draw + over, place=place.masked_fill(over, 1), halving=halving.masked_fill(over, 0),
            low=low, high=high,
        )  # fmt: skip

    def _share(self, state: WalkState) -> Tensor:
        """`[B]` the share of the member to query."""
        return torch.where(state.halving == 0, state.place / self.steps * state.most, (state.low + state.high) / 2)

    def _reach(self, x: Tensor, family: Tensor, radius: Tensor) -> Tensor:
        """`[B]` float64 share of the last member within the radius `[B]`."""
        low, high = torch.zeros_like(radius), torch.ones_like(radius)
        if bool(radius.isinf().all()):  # saves time and changes no row's value
            return high
        whole = self.ball.distance(x, self.member(x, family, high)) <= radius
        for _ in range(self.reach_halvings):
            middle = (low + high) / 2
            inside = self.ball.distance(x, self.member(x, family, middle)) <= radius
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
        return torch.where(whole, torch.ones_like(low), low)
