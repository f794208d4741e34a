"""Square Attack: random search with square windows that shrink; needs scores, not gradients.

Andriushchenko et al. 2020, arXiv:1912.00049; the L1 form follows Croce & Hein 2021, arXiv:2103.01208, and their code.
Ours differs: every image draws its own windows and signs (the authors' code draws one for a whole batch); windows
may touch the last row and column (in L2 and L1 rarely); images need not be square nor have channels; the windows reach
their smallest size within the budget, unless `shrink_over` is larger.
Bad at: budgets below a few hundred queries.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache

import torch
from torch import Tensor

from robustkit.primitives.best import begin_best, best, no_better
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.queries import ScoreAttack

from .._planes import plane
from .square_windows import Proposal, centred_patterns, stripes

# The share of pixels in a window is halved when these of 10 000 queries are spent (the paper's schedule).
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)


@dataclass(frozen=True)
class Square(ScoreAttack):
    """Square Attack on the margin, in Linf, L2 or L1.

    Args:
        queries: forward passes per trial, at least 2.
        p_init: share of all pixels in the first window.
        shrink_over: queries after which the windows would have their smallest size; None takes `queries`, AutoAttack
            10,000 for its 5000 queries.
    """

    _: KW_ONLY
    p_init: float = 0.8
    shrink_over: int | None = None

    norms = ("Linf", "L2", "L1")
    guesses = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.share("p_init")
        if self.shrink_over is not None:
            self.at_least(1, "shrink_over")

    def init(self, trials: Trials) -> BestState:
        flat = plane(trials.x)
        start_of = stripes if self.ball.norm == "Linf" else centred_patterns
        return begin_best(trials, start_of(flat, trials.key, self.ball).reshape(trials.x.shape))

    def step(self, state: State, seen: Seen) -> BestState:
        assert isinstance(state, BestState)
        now = best(state, seen)
        queries = state.queries + 1
        x, point = plane(state.trial.x), plane(now.point)
        over = self.queries if self.shrink_over is None else self.shrink_over
        side_at = sides(self.queries, over, self.p_init, x.shape[-2] * x.shape[-1], self.ball.norm != "Linf")
        side = side_at.to(queries.device).index_select(0, (queries - 1).clamp(max=self.queries - 1))
        query = Proposal(x, point, state.trial.key, queries, side).of(self.ball).reshape(state.query.shape)
        return BestState(state.trial, query, queries, queries >= self.queries - 1, now.point, now.loss)

    def guess(self, state: State, steps: Tensor) -> BestState:
        """The states if no answer is better than the best one, as is true of nearly all late in a search."""
        assert isinstance(state, BestState)
        return self.step(replace(state, queries=state.queries + steps - 1), no_better(state))


@cache
def sides(queries: int, over: int, p_init: float, pixels: int, centred: bool) -> Tensor:
    """`[queries]` side of the window at each query; odd and at least 3 if windows contain a centred pattern."""
    window_sides = []
    for query in range(queries):
        rescaled = int(query / over * 10000)
        share = p_init / 2 ** sum(rescaled > mark for mark in _HALVINGS)
        side = max(round(math.sqrt(share * pixels)), 3 if centred else 1)
        window_sides.append(side + 1 - side % 2 if centred else side)
    return torch.tensor(window_sides, device="cpu")
