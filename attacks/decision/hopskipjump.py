"""HopSkipJump: estimates the boundary's normal from labels around a boundary point, steps along it, and returns.

Chen, Jordan & Wainwright 2020, arXiv:1904.02144, algorithm 2, with a geometric search for the step size. "QEBA"
(Li et al. 2020, arXiv:2005.14137), which samples among low frequencies only, is frequencies=0.25.
Bad at: budgets below some hundred queries, and targeted trials: they begin at noise, which is seldom of the target
class, and end without an error if it never is.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from .._cosines import smooth_noise
from .._planes import plane
from ._label_search import BISECT, START, BoundaryState, LabelAttack, between, bisected, length, next_query, searching

SAMPLE, WALK = 2, 3

_FINEST = 1e-7  # smallest tolerance of a share: fp32 numbers near 1 are that far apart


@dataclass(frozen=True)
class HopSkipJumpState(BoundaryState):
    """The state of one trial."""

    iteration: Tensor  # [B] int64 number of the estimate, from 1
    base: Tensor  # [B, *S] the point at the boundary around which the labels are sampled
    reach: Tensor  # [B] distance of the samples from `base`
    samples: Tensor  # [B] int64 samples so far of this estimate
    errors: Tensor  # [B] int64 how many of them were errors
    total: Tensor  # [B, *S] sum of all sampled directions
    error_total: Tensor  # [B, *S] sum of the sampled directions that led to errors
    length: Tensor  # [B] length of the step along the estimate


@dataclass(frozen=True)
class HopSkipJump(LabelAttack):
    """HopSkipJump attack in L2 or Linf.

    Args:
        queries: forward passes per trial, at least 2.
        samples: directions of the first estimate; the t-th has sqrt(t) times as many.
        most_samples: the most directions of an estimate.
        frequencies: share of the frequencies of each side, the lowest ones, of which directions consist; at least 8.
    """

    _: KW_ONLY
    samples: int = 100
    most_samples: int = 10_000
    frequencies: float = 1.0

    norms = ("L2", "Linf")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "samples", "most_samples")
        self.share("frequencies")

    def init(self, trials: Trials) -> HopSkipJumpState:
        x, zero = trials.x, torch.zeros_like(trials.y)
        none, nothing = torch.zeros_like(x), zero.to(x)
        return HopSkipJumpState(
            **searching(trials), iteration=zero, base=x, reach=nothing, samples=zero, errors=zero, total=none,
            error_total=none, length=nothing,
        )  # fmt: skip

    def advance(self, state: NearestState, error: Tensor) -> HopSkipJumpState:
        assert isinstance(state, HopSkipJumpState)
        state = self._sampled(state, error)
        walking = state.phase == WALK
        complete = (state.phase == SAMPLE) & (state.samples >= self._wanted(state.iteration))
        first_length = self._distance(state.trial.x, state.base) / state.iteration.clamp(min=1).to(state.base).sqrt()
        stride = torch.where(complete, first_length, torch.where(walking & ~error, state.length / 2, state.length))
        # If only a step shorter than the samples' distance is left, the estimate is wrong, and a new one begins.
        stuck = walking & ~error & (stride < state.reach)

        moved = error & (walking | (state.phase == START))
        search = bisected(state, error, moved, self._tolerance(state))
        again = search.arrived | stuck
        phase = state.phase.masked_fill(moved, BISECT).masked_fill(complete, WALK).masked_fill(again, SAMPLE)
        base = torch.where(
            along(search.arrived, state.base),
            between(self.ball.norm, state.trial.x, search.end, search.high),
            state.base,
        )
        state = replace(
            state, phase=phase, end=search.end, low=search.low, high=search.high, base=base, length=stride,
            iteration=state.iteration + again, samples=state.samples.masked_fill(again, 0),
            errors=state.errors.masked_fill(again, 0), total=state.total.masked_fill(along(again, base), 0),
            error_total=state.error_total.masked_fill(along(again, base), 0),
        )  # fmt: skip
        state = replace(state, reach=torch.where(again, self._reach(state), state.reach))
        return replace(state, query=self._query(state))

    def _sampled(self, state: HopSkipJumpState, error: Tensor) -> HopSkipJumpState:
        """The answer at a sample, added to the sums of its estimate."""
        sampling = state.phase == SAMPLE
        # Clipping to [0, 1] may have moved the sample: what counts is where the model was queried.
        direction = (state.query - state.base) / along(state.reach.clamp(min=1e-12), state.query)
        direction = torch.where(along(sampling, direction), direction, 0)
        return replace(
            state, samples=state.samples + sampling, errors=state.errors + (sampling & error),
            total=state.total + direction,
            error_total=state.error_total + torch.where(along(error, direction), direction, 0),
        )  # fmt: skip

    def _query(self, state: HopSkipJumpState) -> Tensor:
        x, key, draw = state.trial.x, state.trial.key, state.queries + 1
        return next_query(
            state,
            self.ball.norm,
            (
                lambda: (state.base + along(state.reach, x) * self._direction(x, key, draw)).clamp(0, 1),
                lambda: (state.base + along(state.length, x) * self._normal(state)).clamp(0, 1),
            ),
        )

    def _direction(self, x: Tensor, key: Tensor, draw: Tensor) -> Tensor:
        """A random direction of unit length: uniform on the sphere, or in Linf that of a point of a cube."""
        if self.frequencies < 1:
            return _unit(smooth_noise(plane(x), key, draw, self.frequencies).reshape(x.shape))
        if self.ball.norm == "Linf":
            return _unit(noise.uniform(key, draw, x.shape[1:]).to(x) * 2 - 1)
        return _unit(noise.normal(key, draw, x.shape[1:]).to(x))

    def _normal(self, state: HopSkipJumpState) -> Tensor:
        """The estimate of the boundary's normal, towards errors; equation 16 of the paper, with its mean subtracted."""
        share = state.errors.to(state.base) / state.samples.clamp(min=1).to(state.base)
        mean = torch.where((share == 0) | (share == 1), 0, 2 * share - 1)
        normal = 2 * state.error_total - state.total - along(mean, state.total) * state.total
        return normal.sign() if self.ball.norm == "Linf" else _unit(normal)

    def _wanted(self, iteration: Tensor) -> Tensor:
        wanted = (self.samples * iteration.double().sqrt()).floor().long()
        return wanted.clamp(max=self.most_samples)

    def _reach(self, state: HopSkipJumpState) -> Tensor:
        """The paper's distance of the samples: a tenth of the box at first, then distance / dimensions."""
        later = self._distance(state.trial.x, state.base) / state.base[0].numel()
        return torch.where(state.iteration <= 1, 0.1, later)

    def _distance(self, x: Tensor, point: Tensor) -> Tensor:
        return self.ball.distance(x, point).to(x)

    def _tolerance(self, state: HopSkipJumpState) -> float:
        """The paper's theta: the base is much nearer to the boundary than the samples are to the base."""
        size = state.base[0].numel()
        return max(float(size ** (-2.0 if self.ball.norm == "Linf" else -1.5)), _FINEST)


def _unit(direction: Tensor) -> Tensor:
    return direction / along(length(direction), direction)
