"""SignHunter: finds the signs of the gradient by flipping blocks of them and comparing the loss.

Al-Dujaili & O'Reilly 2020 (ICLR, "Sign bits are all you need for black-box attacks"), algorithm 1; a correct
classification of every sign would be the fast gradient sign method. Ours differs: the loss is the margin; after the
blocks of one value, those of all values follow again; later restarts begin at random signs.
Bad at: losses that are far from linear in the ball; like all such blocks, it depends on the order of the pixels.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.protocol import Attack, BestState, Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rows import along

from .._blocks import Block, after, first_signs, flipped


@dataclass(frozen=True)
class SignHunterState(BestState):
    """The state of one trial."""

    signs: Tensor  # [B, *S] of `best`, each -1 or 1
    level: Tensor  # [B] int64 of the block that the query flips; before the first answer it flips none
    number: Tensor  # [B] int64 of the block that the query flips


@dataclass(frozen=True)
class SignHunter(Attack):
    """Search for the gradient's signs by the margin, in Linf.

    Args:
        queries: forward passes per trial, at least 2.
    """

    _: KW_ONLY
    queries: int = 5000

    sees = "logits"
    norms = ("Linf",)
    keeps_best = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "queries")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.queries, 0)

    def init(self, trials: Trials) -> SignHunterState:
        signs, zero = first_signs(trials), torch.zeros_like(trials.y)
        start = self._point(trials.x, signs)
        lowest = torch.full_like(zero, -torch.inf, dtype=start.dtype)
        return SignHunterState(
            **vars(begin(trials, start)), best=start, best_loss=lowest, signs=signs, level=zero, number=zero
        )

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss("margin")(logits, trials.y, trials.loss_target)

    def step(self, state: State, seen: Seen) -> SignHunterState:
        assert isinstance(state, SignHunterState)
        block, started = Block(state.level, state.number), state.queries > 0
        better = seen.loss > state.best_loss
        signs = torch.where(along(better & started, state.signs), flipped(state.signs, block), state.signs)
        block = after(block, started, signs[0].numel())
        queries = state.queries + 1
        return SignHunterState(
            trial=state.trial, query=self._point(state.trial.x, flipped(signs, block)), queries=queries,
            done=queries >= self.queries - 1,
            best=torch.where(along(better, state.best), state.query, state.best),
            best_loss=torch.where(better, seen.loss, state.best_loss),
            signs=signs, level=block.level, number=block.number,
        )  # fmt: skip

    def _point(self, x: Tensor, signs: Tensor) -> Tensor:
        return self.ball.project(x, x + self.ball.eps * signs)
