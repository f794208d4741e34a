"""Grid search over rotations and translations: every combination of some angles and shifts.

Engstrom et al. 2019, arXiv:1712.02779, who take 31 angles and 5 x 5 shifts, and find that gradients do worse here than
trying. Ours differs: shifts are whole or half pixels exactly, and the order is from the image outwards, so the first
error is the one that needs the smallest share of the radius.
Bad at: errors between the points of the grid.
"""

import itertools
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rendered import Rendered


@dataclass(frozen=True)
class Grid(Attack):
    """Every point of a grid of angles and shifts, equally spaced from one end of their range to the other.

    Args:
        angles: number of angles.
        shifts: number of shifts along each axis.
    """

    _: KW_ONLY
    angles: int = 31
    shifts: int = 5

    sees = "labels"
    norms = ("spatial", "rotation", "translation")
    guesses = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "angles", "shifts")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(max(len(self.points), 2), 0)

    @cached_property
    def points(self) -> list[tuple[float, ...]]:
        """All points in units of the radius, those at the centre first; ties in the order of loops over the axes."""
        angles, shifts = _spaced(self.angles), _spaced(self.shifts)
        axes = {"rotation": [angles], "translation": [shifts, shifts], "spatial": [angles, shifts, shifts]}
        return sorted(itertools.product(*axes[self.ball.norm]), key=lambda point: max(map(abs, point)))

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return logits.new_zeros(len(logits))

    def init(self, trials: Trials) -> State:
        return begin(trials, self._query(trials.x, torch.zeros_like(trials.y)))

    def step(self, state: State, seen: Seen) -> State:
        return self.guess(state, torch.ones_like(state.queries))

    def guess(self, state: State, steps: Tensor) -> State:
        """The states that follow: no answer changes them."""
        queries = state.queries + steps
        query = self._query(state.trial.x, queries)
        return replace(state, query=query, queries=queries, done=queries >= len(self.points) - 1)

    def _query(self, x: Tensor, number: Tensor) -> Tensor:
        """`[B, P]` the parameters of points by number `[B]`; beyond the last one its own."""
        assert isinstance(self.ball, Rendered), "a grid of pixels"
        points = torch.tensor(self.points, dtype=x.dtype, device=x.device) * self.ball.eps * self.ball.unit(x)
        return points.index_select(0, number.clamp(max=len(points) - 1))


def _spaced(count: int) -> list[float]:
    """So many numbers from -1 to 1; 0 if it is one."""
    return [(2 * number - (count - 1)) / max(count - 1, 1) for number in range(count)]
