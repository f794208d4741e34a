"""Sign-OPT: turns the direction from the image to an error so that the boundary along it is nearer to the image.

Cheng, Singh, Chen, Chen, Liu & Hsieh 2020, arXiv:1909.10773, algorithm 1: the sign of a directional derivative is
whether a turned direction has an error at the same distance. Ours differs: it begins with the first error, not with the
nearest of 100; a new direction is dropped after one query if there is no error at the least distance so far; the next
estimate begins with the last step size that helped.
Bad at: small budgets, because each estimate takes `samples` queries; targeted trials, which begin at noise.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from ._label_search import BISECT, START, BoundaryState, LabelAttack, bisected, length, next_query, searching

SAMPLE, TRY, SHRINK, CUT = 2, 3, 4, 5

_SHORTER = 0.01  # first reduction of the radius along a better direction, as a share; doubled until there is no error
_GROWN, _FALLEN = 2.0, 0.25  # factors of the step size after a better and after a worse direction
_LEAST = 1e-4  # below this step size a new estimate begins, with the first step size
_FINEST = 1e-7  # smallest relative tolerance of a radius


@dataclass(frozen=True)
class SignOptState(BoundaryState):
    """The state of one trial; in the phases after BISECT, `low` and `high` are radii along `tried`."""

    at: Tensor  # [B, *S] the direction that is turned, of Euclidean length 1
    best: Tensor  # [B, *S] the direction of the nearest error since the last estimate
    least: Tensor  # [B] float64 distance of the error along it
    samples: Tensor  # [B] int64 samples so far of this estimate
    total: Tensor  # [B, *S] sum of the sampled turns, those without an error negative
    step_size: Tensor  # [B] float64 factor of the mean of the samples
    stride: Tensor  # [B] float64 share by which the next radius is shorter
    grown: Tensor  # [B] bool, a step along this estimate was better
    fallen: Tensor  # [B] bool, its first step was worse


@dataclass(frozen=True)
class SignOPT(LabelAttack):
    """Sign-OPT attack in L2.

    Args:
        queries: forward passes per trial, at least 2.
        samples: turned directions of one estimate.
        spread: length of the samples' turns, in units of the direction's length.
        step_size: first factor of an estimate.
    """

    _: KW_ONLY
    samples: int = 200
    spread: float = 0.001
    step_size: float = 0.2

    norms = ("L2",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "samples")
        self.positive("spread", "step_size")

    def init(self, trials: Trials) -> SignOptState:
        x, zero = trials.x, torch.zeros_like(trials.y)
        none, nothing = torch.zeros_like(x), zero.double()
        return SignOptState(
            **searching(trials), at=none, best=none, least=nothing, samples=zero, total=none,
            step_size=nothing + self.step_size, stride=nothing + _SHORTER, grown=zero > 0, fallen=zero > 0,
        )  # fmt: skip

    def advance(self, state: NearestState, error: Tensor) -> SignOptState:
        assert isinstance(state, SignOptState)
        state = self._sampled(state, error)
        x, tolerance = state.trial.x, self._tolerance(state.trial.x)
        trying, shrinking, cutting = (state.phase == phase for phase in (TRY, SHRINK, CUT))
        complete = (state.phase == SAMPLE) & (state.samples >= self.samples)
        started = error & (state.phase == START)
        search = bisected(state, error, started, tolerance)
        queried_radius, along_turn = self._asked(state), trying | shrinking | cutting
        high = torch.where(along_turn & error, queried_radius, search.high)
        low = torch.where(along_turn & ~error, queried_radius, search.low)
        better, worse = cutting & (high - low <= tolerance * high), trying & ~error

        way = search.end - x
        best = torch.where(along(better, x), self._turned(state), state.best)
        best = torch.where(along(search.arrived, x), way / along(length(way), x), best)
        least = torch.where(search.arrived, search.high * length(way).double(), torch.where(better, high, state.least))
        # Larger steps follow a first one that was better, smaller ones a first one that was worse.
        fallen = (state.fallen | (worse & ~state.grown)) & ~complete
        grown = (state.grown | better) & ~complete
        settled = (better & fallen) | (worse & grown)
        factor = torch.where(better & ~fallen, _GROWN, torch.where(worse, torch.where(grown, 1 / _GROWN, _FALLEN), 1.0))
        step_size = state.step_size * factor
        lost = worse & (step_size < _LEAST)
        fresh = search.arrived | settled | lost
        phase = state.phase.masked_fill(started, BISECT).masked_fill(complete | better | worse, TRY)
        phase = phase.masked_fill(trying & error, SHRINK).masked_fill(shrinking & ~error, CUT)
        state = replace(
            state, phase=phase.masked_fill(fresh, SAMPLE), end=search.end, low=low, high=high, best=best, least=least,
            at=torch.where(along(fresh, x), best, state.at), samples=state.samples.masked_fill(fresh, 0),
            total=state.total.masked_fill(along(fresh, x), 0), grown=grown, fallen=fallen,
            step_size=step_size.masked_fill(lost, self.step_size),
            stride=torch.where(shrinking & error, (2 * state.stride).clamp(max=1), state.stride).masked_fill(
                trying, _SHORTER
            ),
        )  # fmt: skip
        return replace(state, query=self._query(state))

    def _sampled(self, state: SignOptState, error: Tensor) -> SignOptState:
        """The state with the sampled turn added to the estimate, or subtracted from it if it is no error."""
        sampling = state.phase == SAMPLE
        if not bool(sampling.any()):  # saves time and changes no row's value
            return state
        turn = self._turn(state, state.queries)
        turn = torch.where(along(error, turn), turn, -turn)
        total = torch.where(along(sampling, turn), state.total + turn, state.total)
        return replace(state, samples=state.samples + sampling, total=total)

    def _query(self, state: SignOptState) -> Tensor:
        return next_query(
            state,
            "L2",
            (
                lambda: self._point(state, state.at + self.spread * self._turn(state, state.queries + 1), state.least),
                lambda: self._point(state, self._turned(state), self._asked(state)),
            ),
        )

    def _asked(self, state: SignOptState) -> Tensor:
        """`[B]` the radius of the query along the turned direction."""
        shorter, middle = state.high * (1 - state.stride), (state.low + state.high) / 2
        return torch.where(state.phase == TRY, state.least, torch.where(state.phase == SHRINK, shorter, middle))

    def _turn(self, state: SignOptState, draw: Tensor) -> Tensor:
        """The random turn of length 1 of one sample."""
        turn = noise.normal(state.trial.key, draw, state.query.shape[1:]).to(state.query)
        return turn / along(length(turn), turn)

    def _turned(self, state: SignOptState) -> Tensor:
        """The direction after a step along the mean of the samples."""
        turned = state.at + state.total * along((state.step_size / self.samples).to(state.at), state.at)
        return turned / along(length(turned), turned)

    def _point(self, state: SignOptState, direction: Tensor, radius: Tensor) -> Tensor:
        return (state.trial.x + direction * along(radius.to(direction) / length(direction), direction)).clamp(0, 1)

    def _tolerance(self, x: Tensor) -> float:
        """Far less than a sample changes the radius; otherwise all samples could be on one side of the boundary."""
        return max(self.spread / (10 * math.sqrt(x[0].numel())), _FINEST)
