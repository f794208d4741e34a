"""Brendel-Bethge: starts at an error far from the image and walks along the decision boundary to the nearest one.

Brendel, Rauber, Kümmerer, Ustyuzhaninov & Bethge 2019, arXiv:1907.01003; the schedules are those of the authors' code
in foolbox. Ours differs: the first error is noise; halfway, a second walk begins at the image, because the first may
have ended in a local minimum; where no noise is an error, and in trials that must reach a class, the first walk begins
at the image, and the second one where the first ended; the radius of the steps does not depend on the number of images.
`_trust_region.py` has the step, and what differs there.
Bad at: few steps, because the first error is far away; L0, where it is slow and may change a value or two more than
necessary.
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cache

import torch
from torch import Tensor

from robustkit.primitives.ball import NormName
from robustkit.primitives.nearest import nearest
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._phases import by_phase
from .._schedules import at, table
from ..decision._label_search import BISECT, START, BoundaryState, bisected, random_start, searching
from ..decision._label_search import between as straight
from ._margins import error_margin
from ._trust_region import step_along_boundary

_DESCEND = 2
_HALVINGS = 10  # bisections between the image and the first error
_SHRINKS = 20  # how often a walk halves the radius
_EXCHANGE = 2.0  # L2 length that lets two values change by their whole range, with room to spare


@dataclass(frozen=True)
class BrendelBethgeState(BoundaryState):
    """The state of one trial."""

    descents: Tensor  # [B] int64 steps along the boundary so far, in both walks
    normal: Tensor  # [B, *S] moving average of the margin's gradients in this walk


@dataclass(frozen=True)
class BrendelBethge(Attack):
    """Brendel & Bethge's attack.

    Args:
        steps: gradient steps along the boundary per trial, in both walks together.
        radius: L2 length of the first steps, in units of the number of values of an image; each walk halves it twenty
            times. None is 1 / steps of a walk, the authors' 1e-3 at their 1000 steps: any walk is as long. In L0 such
            a step is at least 2 long: shorter ones cannot put one value back and change another instead.
        momentum: share of the old value in the moving average of the boundary's normal.
        overshoot: how far a step towards errors goes, as a multiple of the distance to the linearised boundary; a step
            from an error back to the boundary goes 2 - overshoot.
        starts: points of noise that are queried to find a first error.
    """

    _: KW_ONLY
    steps: int = 1000
    radius: float | None = None
    momentum: float = 0.8
    overshoot: float = 1.1
    starts: int = 10

    norms = ("L2", "Linf", "L1", "L0")
    seeks_nearest = True
    reads_all_gradients = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "starts")
        if self.radius is not None:
            self.positive("radius")
        self.at_least(0.0, "momentum", "overshoot")

    @property
    def cost(self) -> TrialCost:
        queries = self.starts + _HALVINGS + self.steps
        return TrialCost(queries + 1, self.steps)

    def gradients_read(self, state: State) -> Tensor:
        assert isinstance(state, BrendelBethgeState)
        return (state.phase == _DESCEND).long()

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return error_margin(logits, trials)

    def init(self, trials: Trials) -> BrendelBethgeState:
        start = searching(trials)
        aims = trials.target >= 0  # noise is hardly ever of a given class
        start["query"] = torch.where(along(aims, trials.x), trials.x, start["query"])
        start["phase"] = start["phase"].masked_fill(aims, _DESCEND)
        return BrendelBethgeState(
            **start, descents=torch.zeros_like(trials.y), normal=torch.zeros_like(trials.x)
        )  # fmt: skip

    def step(self, state: State, seen: Seen) -> BrendelBethgeState:
        assert isinstance(state, BrendelBethgeState)
        x, queries = state.trial.x, state.queries + 1
        closest = nearest(state, seen.label, self.ball)
        starting, descending = state.phase == START, state.phase == _DESCEND
        way = bisected(state, closest.error, starting & closest.error, 2.0**-_HALVINGS)
        failed = starting & ~closest.error & (queries >= self.starts)
        phase = state.phase.masked_fill(starting & closest.error, BISECT).masked_fill(way.arrived | failed, _DESCEND)
        descents = state.descents + descending
        done = descents >= self.steps
        after = BrendelBethgeState(
            trial=state.trial, query=state.query, queries=queries, done=done, nearest=closest.point,
            distance=closest.distance, phase=phase, end=way.end, low=way.low, high=way.high, descents=descents,
            normal=self._normal(state, seen),
        )  # fmt: skip
        makers = (
            lambda: random_start(x, state.trial.key, queries),
            lambda: between(self.ball.norm, x, way.end, (way.low + way.high) / 2),
            lambda: torch.where(along(failed, x), x, between(self.ball.norm, x, way.end, way.high)),
            lambda: self._descended(state, after, seen),
        )
        query = by_phase(phase + descending, makers)
        return replace(after, query=torch.where(along(done, x), closest.or_else(state.query), query))

    @property
    def _walk(self) -> int:
        """Steps of the first walk; the second one has the others."""
        return (self.steps + 1) // 2

    def _normal(self, state: BrendelBethgeState, seen: Seen) -> Tensor:
        mixed = self.momentum * state.normal + (1 - self.momentum) * seen.grad
        mixed = torch.where(along(state.descents % self._walk == 0, mixed), seen.grad, mixed)
        return torch.where(along(state.phase == _DESCEND, mixed), mixed, state.normal)

    def _descended(self, state: BrendelBethgeState, after: BrendelBethgeState, seen: Seen) -> Tensor:
        x, normal = state.trial.x, after.normal
        back = torch.where(seen.loss < 0, self.overshoot, 2 - self.overshoot)
        values = normal[0].numel()
        least = _EXCHANGE if self.ball.norm == "L0" else 0.0
        first = max(values / self._walk, least) if self.radius is None else values * self.radius
        radius = first * at(state.descents % self._walk, _halved(self._walk), normal)
        stepped = step_along_boundary(self.ball.norm, x, state.query, normal, -back * seen.loss, radius)
        began_at_noise = (state.end != x).flatten(1).any(1)
        return torch.where(along((after.descents == self._walk) & began_at_noise, x), x, stepped)


def between(norm: NormName, x: Tensor, end: Tensor, share: Tensor) -> Tensor:
    """The point at a share `[B]` of the way from `x` to `end`; in L1 and L0 the largest changes come first."""
    if norm == "L0":
        least = along(1 - share, x).to(x)
        return torch.where((end - x).abs() >= least, end, x)
    if norm != "L1":
        return straight(norm, x, end, share)
    way, least = end - x, along(1 - share, x).to(x)
    return (x + way.sign() * (way.abs() - least).clamp(min=0)).clamp(0, 1)


@cache
def _halved(steps: int) -> Tensor:
    """`[steps]` from 1, halved after each of 20 equal parts, as in the authors' code."""
    part = max(1, steps // _SHRINKS)
    return table(0.5 ** ((turn + 2) // part) for turn in range(steps))
