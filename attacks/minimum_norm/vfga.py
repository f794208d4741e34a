"""VFGA: changes one value after the other; of some random changes of the most promising two, the best is kept.

Hajri, Césaire, Schott, Lamprier & Gallinari 2022, arXiv:2011.12423, the voting folded Gaussian attack. Ours differs:
probabilities are compared as log-odds, which have the same order and gradients of the same direction and do not
saturate; the gradient of the next value comes with the answer at the change that was kept, so that no query is for a
gradient only.
Bad at: cost, as every change takes 2 * samples queries with their gradients; errors that need several values at once.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ascent import LossAttack
from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._starts import first_query


@dataclass(frozen=True)
class VfgaState(NearestState):
    """The state of one trial."""

    base: Tensor  # [B, *S] the point with all changes that were kept
    base_grad: Tensor  # [B, *S] the gradient there
    best: Tensor  # [B, *S] the best of the random changes so far
    best_grad: Tensor  # [B, *S] the gradient there
    best_loss: Tensor  # [B]
    drawn: Tensor  # [B] int64 random changes so far of this value, -1 at the first query


@dataclass(frozen=True)
class VFGA(LossAttack):
    """Voting folded Gaussian attack in L0.

    Args:
        steps: values that are changed at most.
        samples: random changes of each of the two most promising values: the one to increase and the one to decrease.
    """

    _: KW_ONLY
    steps: int = 100
    samples: int = 10

    norms = ("L0",)
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "samples")

    @property
    def cost(self) -> TrialCost:
        queries = 1 + 2 * self.samples * self.steps
        return TrialCost(queries + 1, queries)

    def init(self, trials: Trials) -> VfgaState:
        start = begin_nearest(trials, first_query(self.ball, trials))
        query, none = start.query, torch.zeros_like(start.query)
        worst = torch.full_like(trials.y, -torch.inf, dtype=query.dtype)
        return VfgaState(
            **vars(start), base=query, base_grad=none, best=query, best_grad=none, best_loss=worst,
            drawn=torch.full_like(trials.y, -1),
        )  # fmt: skip

    def step(self, state: State, seen: Seen) -> VfgaState:
        assert isinstance(state, VfgaState)
        x, queries = state.trial.x, state.queries + 1
        found = nearest(state, seen.label, self.ball)
        better = seen.loss > state.best_loss
        best = torch.where(along(better, x), state.query, state.best)
        best_grad = torch.where(along(better, x), seen.grad, state.best_grad)
        drawn = state.drawn + 1

        over = (drawn == 0) | (drawn >= 2 * self.samples)
        kept = along(over, x)
        after = replace(
            state, queries=queries, nearest=found.point, distance=found.distance,
            base=torch.where(kept, best, state.base), base_grad=torch.where(kept, best_grad, state.base_grad),
            best=best, best_grad=best_grad, drawn=drawn.masked_fill(over, 0),
            best_loss=torch.where(over, -torch.inf, torch.where(better, seen.loss, state.best_loss)),
        )  # fmt: skip
        # More values only lead farther away.
        spent = queries >= 1 + 2 * self.samples * self.steps
        done = spent | (over & found.distance.isfinite())
        query = torch.where(along(done, x), found.or_else(state.query), self._changed(after))
        return replace(after, query=query, done=done)

    def _changed(self, state: VfgaState) -> Tensor:
        """The base with one value moved by the absolute value of a Gaussian: up in the first half of the draws."""
        base, grad = state.base.flatten(1), state.base_grad.flatten(1)
        up = (state.drawn < self.samples).unsqueeze(1)
        room = torch.where(up, 1 - base, base)
        gain = torch.where(up, grad, -grad) * room
        place = gain.masked_fill(base != state.trial.x.flatten(1), -torch.inf).argmax(1, keepdim=True)
        size = noise.normal(state.trial.key, state.queries, (1,)).to(base).abs() * room.gather(1, place)
        moved = (base.gather(1, place) + torch.where(up, size, -size)).clamp(0, 1)
        return base.scatter(1, place, moved).reshape(state.base.shape)
