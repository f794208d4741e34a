"""Sparse-RS: random search over which values to change, and to which end of their range.

Croce, Andriushchenko, Singh, Flammarion & Hein 2022, arXiv:2006.12834, algorithm 1, for L0; patches and frames are in
`_sparse_local.py`. Ours differs: every image draws its own changes (the authors' code draws one set of places for a
whole batch); an L0 radius counts values (pixels x channels), also with `whole_pixels`; a value that is already at the
end of its range that was drawn goes to the other end.
Bad at: budgets below a few hundred queries.
"""

from dataclasses import KW_ONLY, dataclass
from functools import cache

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ball import finer
from robustkit.primitives.best import begin_best, best
from robustkit.primitives.local_balls import Frame, Patch
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.queries import ScoreAttack

from ._sparse_local import PatchState, begin_frame, begin_patch, frame_step, patch_step

# Pairs (q, d): up to query q of 10 000, `first_share` is divided by d to give the share of places that move (authors'
# code). After the last pair it is divided by _LAST.
_DIVIDED = ((0, 1), (50, 2), (200, 4), (500, 5), (1000, 6), (2000, 8), (4000, 10), (6000, 12), (8000, 15))
_LAST = 20
_FIRST_SHARE = {"L0": 0.3, "patch": 0.4, "frame": 0.5}  # the paper's


@dataclass(frozen=True)
class SparseSearchState(BestState):
    """The state of one trial; P places are values, or whole pixels."""

    chosen: Tensor  # [B, P] bool, the places that are changed in `best`
    proposed: Tensor  # [B, P] bool, the places that are changed in the query


@dataclass(frozen=True)
class SparseRS(ScoreAttack):
    """Sparse random search in L0, in a patch at any place, or in a frame.

    Args:
        queries: forward passes per trial, at least 2.
        first_share: in L0 the share of changed places that move in the first proposals; in a patch or a frame it sets
            the size of the first squares. alpha_init in the paper. None is the paper's value: 0.3 in L0, 0.4 in a
            patch, 0.5 in a frame.
        whole_pixels: in L0, change all channels of a pixel, which costs as many values of the radius.
    """

    _: KW_ONLY
    first_share: float | None = None
    whole_pixels: bool = False

    norms = ("L0", "patch", "frame")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_share is not None:
            self.share("first_share")

    @property
    def alpha(self) -> float:
        """The first share in use."""
        return _FIRST_SHARE[self.ball.norm] if self.first_share is None else self.first_share

    def init(self, trials: Trials) -> BestState:
        if isinstance(self.ball, Patch):
            return begin_patch(trials, self.ball)
        if isinstance(self.ball, Frame):
            return begin_frame(trials, self.ball)
        x, zero = self._places(trials.x), torch.zeros_like(trials.y)
        none = torch.zeros_like(x[:, 0], dtype=torch.bool)
        count = self._count(x)
        first = _picked(~none, trials.key, zero, zero + count, count)
        start = torch.where(first.unsqueeze(1), _ends(x, trials.key, zero), x).reshape(trials.x.shape)
        return SparseSearchState(**vars(begin_best(trials, start)), chosen=none, proposed=first)

    def step(self, state: State, seen: Seen) -> BestState:
        assert isinstance(state, BestState)
        now = best(state, seen)
        if isinstance(state, PatchState):
            return patch_step(state, now, self.queries, self.alpha)
        if isinstance(self.ball, Frame):
            return frame_step(state, now, self.ball, self.queries, self.alpha)
        assert isinstance(state, SparseSearchState)
        chosen = torch.where(now.better.unsqueeze(1), state.proposed, state.chosen)
        queries = state.queries + 1
        query, proposed = self._proposal(state.trial, queries, now.point, chosen)
        return SparseSearchState(
            state.trial, query, queries, queries >= self.queries - 1, now.point, now.loss, chosen, proposed
        )

    def _proposal(self, trial: Trials, queries: Tensor, point: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The best point with some changed places restored and as many others changed; and which places it changes."""
        x, point = self._places(trial.x), self._places(point)
        count = self._count(x)
        moving = _moving(self.queries, self.alpha, count).to(queries.device)
        some = moving.index_select(0, queries.clamp(max=self.queries))
        some = torch.minimum(some, (~chosen).sum(1))  # in a ball that holds every image no place is left
        most = int(moving.max())
        restored = _picked(chosen, trial.key, 2 * queries, some, most)
        changed = _picked(~chosen, trial.key, 2 * queries + 1, some, most)
        point = torch.where(restored.unsqueeze(1), x, point)
        point = torch.where(changed.unsqueeze(1), _ends(x, trial.key, queries), point)
        return point.reshape(trial.x.shape), (chosen & ~restored) | changed

    def _places(self, x: Tensor) -> Tensor:
        """`[B, C, P]`: C values at each of P places."""
        channels = x.shape[1] if self.whole_pixels and x.dim() > 3 else 1
        return x.reshape(len(x), channels, -1)

    def _count(self, x: Tensor) -> int:
        """How many places may differ."""
        return min(int(self.ball.eps) // x.shape[1], x.shape[2])


def _picked(among: Tensor, key: Tensor, draw: Tensor, count: Tensor, most: int) -> Tensor:
    """`[B, P]` bool: `count` `[B]` random places of those in `among`, at most `most`."""
    most = min(most, among.shape[1])
    rank = noise.uniform(key, draw, among.shape[1:]).masked_fill(~among, -1).topk(most, 1).indices
    taken = torch.arange(most, device=rank.device) < count.unsqueeze(1)
    return torch.zeros_like(among).scatter(1, rank, taken) & among


def _ends(x: Tensor, key: Tensor, draw: Tensor) -> Tensor:
    """`[B, C, P]` random zeros and ones; the opposite at places where they equal the image."""
    ends = (noise.uniform(finer(key), draw, x.shape[1:]) >= 0.5).to(x)
    return torch.where((ends == x).all(1, keepdim=True), 1 - ends, ends)


@cache
def _moving(queries: int, first_share: float, count: int) -> Tensor:
    """`[queries + 1]` how many of `count` places move at each query, at least one."""
    moving = []
    for query in range(queries + 1):
        rescaled = int(query / queries * 10000)
        divisor = next((by for mark, by in _DIVIDED if rescaled <= mark), _LAST)
        moving.append(min(max(int(first_share / divisor * count), 1), count))
    return torch.tensor(moving, device="cpu")
