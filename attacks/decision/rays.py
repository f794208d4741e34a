"""RayS: searches for the sign vector along which the error is nearest in Linf, by flipping blocks of signs.

Chen & Gu 2020, arXiv:2006.12792, algorithm 3. A flip takes one query at the smallest radius so far; only if that is an
error does the search for the boundary along the new signs follow. Ours differs: after the blocks of single values, it
starts again with the block of all values; later restarts begin at random signs; the tolerance is relative.
Bad at: images for which no image of black and white values is an error, as in most targeted trials.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives.nearest import NearestState, begin_nearest
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from .._blocks import Block, after, first_signs, flipped
from ._label_search import LabelAttack


@dataclass(frozen=True)
class RaySState(NearestState):
    """The state of one trial."""

    signs: Tensor  # [B, *S] the best direction so far, each value -1 or 1
    radius: Tensor  # [B] float64 smallest radius with an error along it; at first 1, which reaches a corner of the box
    halving: Tensor  # [B] bool, the query bisects along `signs`; else it tries a flip at `radius`
    low: Tensor  # [B] float64 radius along `signs` where there is no error
    level: Tensor  # [B] int64 level of the block that is flipped
    number: Tensor  # [B] int64 number of that block


@dataclass(frozen=True)
class RayS(LabelAttack):
    """Ray searching attack in Linf.

    Args:
        queries: forward passes per trial, at least 2.
        tolerance: the search along a direction ends when the radius is known up to this share of it.
    """

    _: KW_ONLY
    tolerance: float = 1e-3

    norms = ("Linf",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "tolerance")

    def init(self, trials: Trials) -> RaySState:
        zero, signs = torch.zeros_like(trials.y), first_signs(trials)
        radius = zero.double() + 1
        state = RaySState(
            **vars(begin_nearest(trials, trials.x)), signs=signs,
            radius=radius, halving=zero > 0, low=zero.double(), level=zero, number=zero,
        )  # fmt: skip
        return replace(state, query=self._query(state))

    def advance(self, state: NearestState, error: Tensor) -> RaySState:
        assert isinstance(state, RaySState)
        block, middle = Block(state.level, state.number), (state.low + state.radius) / 2
        better, worse = ~state.halving & error, ~state.halving & ~error
        radius = torch.where(state.halving & error, middle, state.radius)
        low = torch.where(state.halving & ~error, middle, state.low).masked_fill(better, 0)
        converged = state.halving & (radius - low <= self.tolerance * radius)
        signs = torch.where(along(better, state.signs), flipped(state.signs, block), state.signs)
        level, number = after(block, worse | converged, signs[0].numel())
        state = replace(
            state, signs=signs, radius=radius, low=low, level=level, number=number,
            halving=(state.halving | better) & ~converged,
        )  # fmt: skip
        return replace(state, query=self._query(state))

    def _query(self, state: RaySState) -> Tensor:
        signs = torch.where(
            along(state.halving, state.signs), state.signs, flipped(state.signs, Block(state.level, state.number))
        )
        radius = torch.where(state.halving, (state.low + state.radius) / 2, state.radius)
        return (state.trial.x + along(radius, signs).to(signs) * signs).clamp(0, 1)
