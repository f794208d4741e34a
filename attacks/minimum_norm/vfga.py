"""VFGA: changes one value after another; each is the best of several random changes of the two most promising values.

Hajri, Césaire, Schott, Lamprier & Gallinari 2022, arXiv:2011.12423, the voting folded Gaussian attack. Ours differs:
probabilities are compared as log-odds, which have the same order and gradients of the same direction and do not
saturate.
Bad at: cost, because each change takes 2 * samples forwards; errors that need several values changed at once.
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
    grad: Tensor  # [B, *S] the gradient there
    changed: Tensor  # [B] int64 number of changes that were kept
    drawn: Tensor  # [B] int64 random changes tried since then; -1 where the gradient at `base` is queried
    best: Tensor  # [B, *S] the point with the best of these changes
    best_loss: Tensor  # [B] its loss


@dataclass(frozen=True)
class VFGA(LossAttack):
    """Voting folded Gaussian attack in L0.

    Args:
        steps: the most values that are changed.
        samples: random changes of each of the two most promising values: the one to increase and the one to decrease.
    """

    _: KW_ONLY
    steps: int = 100
    samples: int = 10

    norms = ("L0",)
    seeks_nearest = True
    reads_all_gradients = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "samples")

    @property
    def cost(self) -> TrialCost:
        return TrialCost((2 * self.samples + 1) * self.steps + 1, self.steps)

    def init(self, trials: Trials) -> VfgaState:
        start = begin_nearest(trials, first_query(self.ball, trials))
        worst = torch.full_like(trials.y, -torch.inf, dtype=start.query.dtype)
        return VfgaState(
            **vars(start), base=start.query, grad=torch.zeros_like(start.query), changed=torch.zeros_like(trials.y),
            drawn=torch.full_like(trials.y, -1), best=start.query, best_loss=worst,
        )  # fmt: skip

    def gradients_read(self, state: State) -> Tensor:
        assert isinstance(state, VfgaState)
        return (state.drawn < 0).long()

    def step(self, state: State, seen: Seen) -> VfgaState:
        assert isinstance(state, VfgaState)
        x, base = state.trial.x, state.drawn < 0
        closest = nearest(state, seen.label, self.ball)
        better = ~base & (seen.loss > state.best_loss)
        best = torch.where(along(better, x), state.query, state.best)
        ends = state.drawn + 1 >= 2 * self.samples
        after = replace(
            state, queries=state.queries + 1, nearest=closest.point, distance=closest.distance,
            base=torch.where(along(ends, x), best, state.base), grad=torch.where(along(base, x), seen.grad, state.grad),
            changed=state.changed + ends, drawn=(state.drawn + 1).masked_fill(ends, -1), best=best,
            best_loss=torch.where(ends, -torch.inf, torch.where(better, seen.loss, state.best_loss)),
        )  # fmt: skip
        # Once there is an error, more changed values only lead farther away.
        done = (after.changed >= self.steps) | ((ends | base) & closest.distance.isfinite())
        query = torch.where(along(ends, x), best, self._changed(after))
        return replace(after, query=torch.where(along(done, x), closest.or_else(state.query), query), done=done)

    def _changed(self, state: VfgaState) -> Tensor:
        """The base with one value moved by the size of a Gaussian number: first `samples` times up, then down."""
        base, grad = state.base.flatten(1), state.grad.flatten(1)
        up = (state.drawn < self.samples).unsqueeze(1)
        room = torch.where(up, 1 - base, base)
        gain = torch.where(up, grad, -grad) * room
        place = gain.masked_fill(base != state.trial.x.flatten(1), -torch.inf).argmax(1, keepdim=True)
        draw = 2 * self.samples * state.changed + state.drawn + 1
        size = noise.normal(state.trial.key, draw, (1,)).to(base).abs() * room.gather(1, place)
        moved = (base.gather(1, place) + torch.where(up, size, -size)).clamp(0, 1)
        return base.scatter(1, place, moved).reshape(state.base.shape)
