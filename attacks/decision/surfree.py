"""SurFree: turns the way from the image to an error in random smooth directions, without estimating a gradient.

Maho, Furon & Le Merrer 2021, arXiv:2011.12807, algorithm 1. A turn by an angle shortens the way by its cosine. Ours
differs: directions are orthogonal to the way, but not to earlier directions, which would have to be stored; in many
dimensions they are nearly orthogonal anyway.
Bad at: networks that ignore low frequencies, unless `frequencies` is raised; targeted trials, which begin at noise.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from .._cosines import smooth_noise
from .._planes import plane
from ._label_search import BISECT, START, BoundaryState, LabelAttack, between, bisected, next_query, searching, tangent

TRY, WIDEN, REFINE = 2, 3, 4

_TOLERANCE = 1e-3  # of the first bisection, as a share of the way
_MOST = 80.0  # largest angle in degrees; at 90 the image itself would be queried
_LEAST = 0.01  # smallest first angle in degrees


@dataclass(frozen=True)
class SurfreeState(BoundaryState):
    """The state of one trial; in the phases after BISECT, `low` and `high` are angles in degrees."""

    at: Tensor  # [B, *S] the error whose way to the image is turned
    angle: Tensor  # [B] float64 degrees of the first turn in each direction
    side: Tensor  # [B] float64, 1 or -1: to which side the way is turned
    turns: Tensor  # [B] int64 number of the direction


@dataclass(frozen=True)
class SurFree(LabelAttack):
    """Surrogate-free attack in L2.

    Args:
        queries: forward passes per trial, at least 2.
        frequencies: share of the frequencies of each side, the lowest ones, of which directions consist; at least 8.
        angle: degrees of the first turn.
        decay: after a direction without an error the angle is multiplied by it, after one with an error divided by it.
        precision: relative tolerance of the bisection for the largest angle with an error.
    """

    _: KW_ONLY
    frequencies: float = 0.25
    angle: float = 30.0
    decay: float = 0.95
    precision: float = 0.1

    norms = ("L2",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "angle", "precision")
        self.share("frequencies")
        self.share("decay")

    def init(self, trials: Trials) -> SurfreeState:
        zero = torch.zeros_like(trials.y)
        return SurfreeState(
            **searching(trials), at=trials.x, angle=zero.double() + min(self.angle, _MOST), side=zero.double() + 1,
            turns=zero,
        )  # fmt: skip

    def advance(self, state: NearestState, error: Tensor) -> SurfreeState:
        assert isinstance(state, SurfreeState)
        x, started = state.trial.x, error & (state.phase == START)
        search = bisected(state, error, started, _TOLERANCE)
        trying, widening, refining = (state.phase == phase for phase in (TRY, WIDEN, REFINE))
        queried_angle = self._queried_angle(state)
        low = torch.where((trying | widening | refining) & error, queried_angle, search.low)
        high = torch.where((widening | refining) & ~error, queried_angle, search.high)
        turned = (widening & ~error) | (widening & error & (queried_angle >= _MOST))
        turned = turned | refining
        refined = turned & ((high - low <= self.precision * low) | (low >= _MOST))
        failed = trying & ~error & (state.side < 0)

        at = torch.where(along(search.arrived, x), between("L2", x, search.end, search.high), state.at)
        at = torch.where(along(refined, x), self._turned(state, low * state.side), at)
        new_direction = search.arrived | refined | failed
        phase = state.phase.masked_fill(started, BISECT).masked_fill(trying & error, WIDEN)
        phase = phase.masked_fill(turned, REFINE).masked_fill(new_direction, TRY)
        factor = torch.where(refined, 1 / max(self.decay, 0.01), torch.where(failed, self.decay, 1.0))
        state = replace(
            state, phase=phase, end=search.end, low=low, high=high, at=at,
            angle=(state.angle * factor).clamp(_LEAST, _MOST),
            side=torch.where(new_direction, 1.0, torch.where(trying & ~error, -1.0, state.side)),
            turns=state.turns + (refined | failed),
        )  # fmt: skip
        return replace(state, query=self._query(state))

    def _queried_angle(self, state: SurfreeState) -> Tensor:
        """`[B]` the angle of the query, in degrees."""
        wider = (2 * state.low).clamp(max=_MOST)
        middle = (state.low + state.high) / 2
        return torch.where(state.phase == TRY, state.angle, torch.where(state.phase == WIDEN, wider, middle))

    def _query(self, state: SurfreeState) -> Tensor:
        return next_query(state, "L2", (lambda: self._turned(state, self._queried_angle(state) * state.side),))

    def _turned(self, state: SurfreeState, angle: Tensor) -> Tensor:
        """The way from the image to `at`, turned by `angle` `[B]` and shortened by its cosine."""
        x, way = state.trial.x, state.at - state.trial.x
        # No other draw of this key has the number: starts count up from 0.
        move = smooth_noise(plane(x), state.trial.key, -1 - state.turns, self.frequencies).reshape(x.shape)
        move = tangent(way, move)
        # One number at a time: torch's vectors and scalars may round a cosine differently.
        both = [(math.cos(math.radians(each)), math.sin(math.radians(each))) for each in angle.tolist()]
        cosine, sine = torch.tensor(both, dtype=x.dtype, device=x.device).reshape(-1, 2).unbind(1)
        return (x + along(cosine, x) * (along(cosine, x) * way + along(sine, x) * move)).clamp(0, 1)
