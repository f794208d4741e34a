"""GeoDA: estimates a hyperplane at the boundary from labels, and moves to its point nearest to the image.

Rahmati, Moosavi-Dezfooli, Frossard & Dai 2020, arXiv:2003.06468, algorithm 1: later estimates take more queries, and
all estimates are added up, as in the authors' code. Ours differs: instead of a step along the normal or its signs, it
moves to the valid point of the hyperplane that is nearest to the image, in every norm; the distance of the samples from
the boundary point is a share of the point's distance from the image; a point that is not nearer is dropped.
Bad at: boundaries that are far from flat between the image and the first error, because all estimates are added up;
several classes around an image, of which it sees the one that the first error leads to; targeted trials, which begin at
noise.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from robustkit.primitives.hyperplane import to_hyperplane
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from .._cosines import smooth_noise
from .._planes import plane
from ._label_search import BISECT, START, BoundaryState, LabelAttack, between, bisected, length, next_query, searching

SAMPLE, CROSS, CUT = 2, 3, 4

_RESERVED = 25  # queries reserved in each iteration for the search for the boundary (the authors' code)
_FIRST_SAMPLES = 80  # most samples of the first estimate (the authors' code)
_GROWTH = 2 / 3  # the t-th estimate takes decay ** (-2 t / 3) times as many samples as the first; equation 19
_BEYOND = 0.1  # the second query is this much beyond the hyperplane; doubled until there is an error
_NEAREST = 1e-3  # least rise of the first query, as a share of the highest: the estimate may be on the wrong side
_FINEST = 1e-6  # smallest tolerance of a share


@dataclass(frozen=True)
class GeodaState(BoundaryState):
    """The state of one trial; in CROSS and CUT, `low` and `high` are multiples of the way to the hyperplane."""

    iteration: Tensor  # [B] int64 number of the estimate, from 1
    base: Tensor  # [B, *S] the point at the boundary around which the labels are sampled
    reach: Tensor  # [B] Euclidean distance of the samples from `base`
    samples: Tensor  # [B] int64 samples so far of this estimate
    total: Tensor  # [B, *S] sum of the sampled directions, those without an error negative
    normal: Tensor  # [B, *S] sum of all estimates


@dataclass(frozen=True)
class GeoDA(LabelAttack):
    """Geometric decision-based attack in L2, Linf or L1.

    Args:
        queries: forward passes per trial, at least 2.
        frequencies: share of the frequencies of each side, the lowest ones, of which directions consist; at least 8.
        spread: distance of the samples from the boundary point, as a share of its distance from the image.
        decay: sets how fast the numbers of samples grow, from 0.01 to 1; with 1 they are all equal.
    """

    _: KW_ONLY
    frequencies: float = 0.25
    spread: float = 0.01
    decay: float = 0.6

    norms = ("L2", "Linf", "L1")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("spread")
        self.at_least(0.01, "decay")
        self.share("frequencies")
        self.share("decay")

    def init(self, trials: Trials) -> GeodaState:
        x, zero = trials.x, torch.zeros_like(trials.y)
        none = torch.zeros_like(x)
        return GeodaState(
            **searching(trials), iteration=zero, base=x, reach=zero.to(x), samples=zero, total=none, normal=none
        )

    def advance(self, state: NearestState, error: Tensor) -> GeodaState:
        assert isinstance(state, GeodaState)
        state = self._sampled(state, error)
        x, crossing, cutting = state.trial.x, state.phase == CROSS, state.phase == CUT
        complete = (state.phase == SAMPLE) & (state.samples >= self._wanted(state.iteration))
        started = error & (state.phase == START)
        # In units of the distance from the boundary, as the reach of samples: the first error may be much farther.
        search = bisected(state, error, started, self._tolerance(x) * state.high)
        queried_share = _share(state)
        low = torch.where(~error & (crossing | cutting), queried_share, search.low).masked_fill(complete, 0)
        high = torch.where(error & (crossing | cutting), queried_share, search.high)
        beyond = torch.maximum(2 * high - 1, torch.full_like(high, 1 + _BEYOND))
        high = torch.where(crossing & ~error, beyond, high).masked_fill(complete, 1)
        lost = crossing & ~error & (high * self._rise(state) > self._most(state))
        arrived = cutting & (high - low <= self._tolerance(x) * high)
        fresh = search.arrived | arrived | lost

        base = torch.where(along(search.arrived, x), between(self.ball.norm, x, search.end, search.high), state.base)
        if bool(arrived.any()):  # saves time and changes no row's value
            there = self._on_way(state, high)
            nearer = arrived & (self.ball.distance(x, there) < self.ball.distance(x, base))
            base = torch.where(along(nearer, x), there, base)
        estimate = state.total / along(state.samples.clamp(min=1).to(x), x)
        phase = state.phase.masked_fill(started, BISECT).masked_fill(complete, CROSS)
        state = replace(
            state, phase=phase.masked_fill(crossing & error, CUT).masked_fill(fresh, SAMPLE),
            end=search.end, low=low, high=high, base=base, iteration=state.iteration + fresh,
            samples=state.samples.masked_fill(fresh, 0), total=state.total.masked_fill(along(fresh, x), 0),
            reach=torch.where(fresh, self.spread * length(base - x), state.reach),
            normal=torch.where(along(complete, x), state.normal + estimate, state.normal),
        )  # fmt: skip
        return replace(state, query=self._query(state))

    def _sampled(self, state: GeodaState, error: Tensor) -> GeodaState:
        """The answer at a sample, added to its estimate."""
        sampling = state.phase == SAMPLE
        # Clipping to [0, 1] may have moved the sample: what counts is where the model was queried.
        direction = (state.query - state.base) / along(state.reach.clamp(min=1e-12), state.query)
        signed = torch.where(along(error, direction), direction, -direction)
        total = torch.where(along(sampling, signed), state.total + signed, state.total)
        return replace(state, samples=state.samples + sampling, total=total)

    def _query(self, state: GeodaState) -> Tensor:
        return next_query(
            state, self.ball.norm, (lambda: self._sample(state), lambda: self._on_way(state, _share(state)))
        )

    def _sample(self, state: GeodaState) -> Tensor:
        x = state.trial.x
        direction = smooth_noise(plane(x), state.trial.key, state.queries + 1, self.frequencies).reshape(x.shape)
        return (state.base + direction * along(state.reach / length(direction), x)).clamp(0, 1)

    def _on_way(self, state: GeodaState, share: Tensor) -> Tensor:
        """The point nearest to the image on a hyperplane parallel to the estimated one, at `share` [B] of the way."""
        x, rise = state.trial.x, self._rise(state) * share
        return (x + to_hyperplane(self.ball.norm, x, state.normal, rise.to(x))).clamp(0, 1)

    def _rise(self, state: GeodaState) -> Tensor:
        """`[B]` float64 the rise of the linear function with that normal from the image to the hyperplane.

        At least a small positive number: an image near the boundary may be on the wrong side of the estimate.
        """
        rise = (state.normal * (state.base - state.trial.x)).flatten(1).sum(1).double()
        return torch.maximum(rise, _NEAREST * self._most(state))

    def _most(self, state: GeodaState) -> Tensor:
        """`[B]` float64 the highest rise of that function as far from the image as the boundary point."""
        return length(state.normal).double() * length(state.base - state.trial.x).double()

    def _wanted(self, iteration: Tensor) -> Tensor:
        number = (iteration - 1).clamp(0, len(self._samples) - 1)
        return torch.tensor(self._samples, device=iteration.device).index_select(0, number)

    @cached_property
    def _samples(self) -> list[int]:
        """Samples of each estimate; there are as many as leave the first one at most 80. The last number repeats."""
        weights: list[float] = []
        first = math.inf
        while first > _FIRST_SAMPLES:
            weights.append(self.decay ** (-_GROWTH * len(weights)))
            first = max(self.queries - _RESERVED * len(weights), 1) / sum(weights)
        return [max(round(first * weight), 1) for weight in weights]

    def _tolerance(self, x: Tensor) -> float:
        """Far less than a sample moves along the normal; otherwise all samples could be on one side of the boundary."""
        return max(self.spread / (10 * math.sqrt(x[0].numel())), _FINEST)


def _share(state: GeodaState) -> Tensor:
    """`[B]` the place of the query, as a multiple of the way to the hyperplane."""
    return torch.where(state.phase == CUT, (state.low + state.high) / 2, state.high)
