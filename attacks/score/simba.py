"""SimBA: tries a fixed step along one basis vector after another, forwards, then backwards; keeps steps that help.

Guo, Gardner, You, Wilson & Weinberger 2019, arXiv:1905.07121, algorithm 1, with their two bases: single values, and
the lowest frequencies of the discrete cosine transform. Ours differs: points are projected onto the ball, where the
paper limits the number of steps; the loss is the margin, which does not saturate as probabilities do; after the low
frequencies, those up to twice as high are tried before the search starts over.
Bad at: images that need a change of many values at once; each query changes one coordinate.
"""

import math
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.errors import unknown
from robustkit.primitives import noise
from robustkit.primitives.best import begin_best, best
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.queries import ScoreAttack
from robustkit.primitives.rows import along

from .._cosines import cosines
from .._planes import plane

_BASES = ("pixel", "dct")
_FEWEST = 4.0  # fewest frequencies of each side that are tried first: an image of 8 x 8 then has a complete basis


@dataclass(frozen=True)
class SimbaState(BestState):
    """The state of one trial."""

    order: Tensor  # [B, D] int64 the basis vectors in the order in which they are tried
    tried: Tensor  # [B] int64 how many have been tried
    against: Tensor  # [B] bool, the query is the step backwards along the vector


@dataclass(frozen=True)
class SimBA(ScoreAttack):
    """Simple black-box attack in L2.

    Args:
        queries: forward passes per trial, at least 2.
        basis: "pixel" for single values, or "dct" for cosines over each channel.
        frequencies: share of the cosines of each side of the image that are tried first, the lowest ones.
        step_size: length of a step, in units of eps.
    """

    _: KW_ONLY
    basis: str = "dct"
    frequencies: float = 0.25
    step_size: float = 0.2

    norms = ("L2",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("step_size")
        self.share("frequencies")
        if self.basis not in _BASES:
            raise unknown("basis", self.basis, _BASES)

    def init(self, trials: Trials) -> SimbaState:
        group = self._groups(*plane(trials.x).shape[1:]).to(trials.x.device)
        order = (group + noise.uniform(trials.key, 0, group.shape)).argsort(dim=1, stable=True)
        order = order[:, : int((group < 2).sum())]
        return SimbaState(
            **vars(begin_best(trials, trials.x)), order=order, tried=torch.zeros_like(trials.y),
            against=torch.zeros_like(trials.y, dtype=torch.bool),
        )  # fmt: skip

    def step(self, state: State, seen: Seen) -> SimbaState:
        assert isinstance(state, SimbaState)
        now, started = best(state, seen), state.queries > 0
        decided = started & (now.better | state.against)
        tried, against = state.tried + decided, started & ~decided
        queries = state.queries + 1
        move = self._vector(state, tried) * along(torch.where(against, -1.0, 1.0).to(now.point), now.point)
        query = self.ball.project(state.trial.x, now.point + self.step_size * self.ball.eps * move)
        return SimbaState(
            state.trial, query, queries, queries >= self.queries - 1, now.point, now.loss, state.order,
            tried, against,
        )  # fmt: skip

    def _groups(self, channels: int, height: int, width: int) -> Tensor:
        """`[D]` the group of each basis vector, from 0; groups are tried one after another."""
        rows, columns = (_doublings(side, self.frequencies) for side in (height, width))
        groups = torch.maximum(rows.unsqueeze(1), columns).flatten().repeat(channels)
        return torch.zeros_like(groups) if self.basis == "pixel" else groups

    def _vector(self, state: SimbaState, tried: Tensor) -> Tensor:
        """`[B, *S]` the basis vector of unit length that is tried next; after the last one, the first one again."""
        x = plane(state.trial.x)
        channels, height, width = x.shape[1:]
        chosen = state.order.gather(1, (tried % state.order.shape[1]).unsqueeze(1)).squeeze(1)
        tall = self._waves(height, x).index_select(0, chosen // width % height).unsqueeze(2)
        wide = self._waves(width, x).index_select(0, chosen % width).unsqueeze(1)
        channel = (chosen // (height * width)).unsqueeze(1) == torch.arange(channels, device=x.device)
        return (channel[:, :, None, None] * (tall * wide).unsqueeze(1)).reshape(state.query.shape)

    def _waves(self, side: int, x: Tensor) -> Tensor:
        """`[side, side]` the basis along one side."""
        return (torch.eye(side, device="cpu") if self.basis == "pixel" else cosines(side)).to(x)


def _doublings(side: int, share: float) -> Tensor:
    """`[side]` for each frequency, how often the share of low frequencies must be doubled to include it."""
    first = max(share * side, _FEWEST)
    return torch.tensor([max(math.ceil(math.log2((number + 1) / first)), 0) for number in range(side)], device="cpu")
