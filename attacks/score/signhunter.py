"""SignHunter: finds the signs of the gradient by flipping blocks of signs and keeping the flips that raise the loss.

Al-Dujaili & O'Reilly 2020 (ICLR, "Sign bits are all you need for black-box attacks"), algorithm 1; with every sign
correct, the point is that of the fast gradient sign method. Ours differs: the loss is the margin; after the blocks of
single values, it starts again with the block of all values; later restarts begin at random signs.
Bad at: losses that are far from linear in the ball. The result depends on the order of the pixels, as blocks do.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from robustkit.primitives.best import begin_best, best
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.queries import ScoreAttack
from robustkit.primitives.rows import along

from .._blocks import Block, after, first_signs, flipped


@dataclass(frozen=True)
class SignHunterState(BestState):
    """The state of one trial."""

    signs: Tensor  # [B, *S] the signs of `best`, each -1 or 1
    level: Tensor  # [B] int64 level of the block that the query flips; the first query flips none
    number: Tensor  # [B] int64 number of that block


@dataclass(frozen=True)
class SignHunter(ScoreAttack):
    """Search for the gradient's signs by the margin, in Linf.

    Args:
        queries: forward passes per trial, at least 2.
    """

    norms = ("Linf",)

    def init(self, trials: Trials) -> SignHunterState:
        signs, zero = first_signs(trials), torch.zeros_like(trials.y)
        start = begin_best(trials, self._point(trials.x, signs))
        return SignHunterState(**vars(start), signs=signs, level=zero, number=zero)

    def step(self, state: State, seen: Seen) -> SignHunterState:
        assert isinstance(state, SignHunterState)
        block, started = Block(state.level, state.number), state.queries > 0
        now = best(state, seen)
        signs = torch.where(along(now.better & started, state.signs), flipped(state.signs, block), state.signs)
        block = after(block, started, signs[0].numel())
        queries = state.queries + 1
        return SignHunterState(
            trial=state.trial, query=self._point(state.trial.x, flipped(signs, block)), queries=queries,
            done=queries >= self.queries - 1, best=now.point, best_loss=now.loss, signs=signs, level=block.level,
            number=block.number,
        )  # fmt: skip

    def _point(self, x: Tensor, signs: Tensor) -> Tensor:
        return self.ball.project(x, x + self.ball.eps * signs)
