"""EAD: proximal gradient steps on an elastic net (weighted L1 plus squared L2 distance) plus a weighted margin.

Chen, Sharma, Zhang, Yi & Hsieh 2018, arXiv:1709.04114, algorithm 1, with the accelerated steps (FISTA) of the authors'
code. Ours differs: errors are looked for where gradients are taken, which saves one forward pass per step; an early end
concerns one image, not the whole batch, and only descents without an error; the defaults are 1,000 steps and a
`shrinkage` of 0.01, where the authors' code has 10,000 and 0.001.
Bad at: cost: it takes thousands of queries for what FMN finds in a few hundred.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.errors import unknown
from robustkit.primitives.nearest import Nearest, NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._schedules import at, square_root
from .._starts import first_query
from ._margins import error_margin
from ._weights import WeightSearch, begin_search, searched

_RULES = ("L1", "EN")


@dataclass(frozen=True)
class EadState(NearestState):
    """The state of one trial."""

    weight: WeightSearch
    start: Tensor  # [B, *S] the point at which each descent begins
    point: Tensor  # [B, *S] end of the last proximal step; the query is extrapolated from it
    elastic: Tensor  # [B] smallest elastic net among the errors so far


@dataclass(frozen=True)
class EAD(Attack):
    """Elastic-net attack, judged in L1.

    Args:
        steps: gradient steps of a descent.
        searches: number of descents, each with another weight.
        step_size: first step size of a descent; it falls to zero as the square root of the share of steps left.
        shrinkage: weight of the L1 distance; each step shrinks every change by as much. beta in the paper.
        first_weight: weight of the margin in the first descent; c in the paper.
        confidence: least margin of an error; kappa in the paper.
        rule: which error is kept: "L1" the one nearest in L1, "EN" the one with the smallest elastic net.
        abort_early: end a descent that has had no error when a tenth of its steps makes no progress.
    """

    _: KW_ONLY
    steps: int = 1000
    searches: int = 9
    step_size: float = 0.01
    shrinkage: float = 0.01
    first_weight: float = 1e-3
    confidence: float = 0.0
    rule: str = "L1"
    abort_early: bool = True

    norms = ("L1",)
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "searches")
        self.at_least(0.0, "shrinkage", "confidence")
        self.positive("step_size", "first_weight")
        if self.rule not in _RULES:
            raise unknown("rule", self.rule, _RULES)

    @property
    def cost(self) -> TrialCost:
        queries = self.searches * self.steps
        return TrialCost(queries + 1, queries)

    def init(self, trials: Trials) -> EadState:
        start = begin_nearest(trials, first_query(self.ball, trials))
        return EadState(
            **vars(start), weight=begin_search(self.first_weight, trials.x), start=start.query, point=start.query,
            elastic=torch.full_like(trials.x.flatten(1)[:, 0], torch.inf),
        )  # fmt: skip

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return error_margin(logits, trials)

    def step(self, state: State, seen: Seen) -> EadState:
        assert isinstance(state, EadState)
        x, change, lacking = state.trial.x, state.query - state.trial.x, self.confidence - seen.loss.to(state.query)
        square, length = (change * change).flatten(1).sum(1), change.flatten(1).abs().sum(1)
        closest, elastic = self._kept_error(state, seen, square + self.shrinkage * length)

        slope = 2 * change - along(state.weight.value * (lacking > 0), x) * seen.grad
        step_size = self.step_size * at(state.weight.step, square_root(self.steps), x)
        moved = change - along(step_size, x) * slope
        point = (x + moved.sign() * (moved.abs() - self.shrinkage).clamp(min=0)).clamp(0, 1)
        turn = state.weight.step.to(x)
        further = (point + along(turn / (turn + 3), x) * (point - state.point)).clamp(0, 1)

        loss = square + self.shrinkage * length + state.weight.value * lacking.clamp(min=0)
        weight = searched(state.weight, closest.error, loss, self.steps, abort_early=self.abort_early)
        new_turn = along(weight.step == 0, x)
        done = weight.turn >= self.searches
        query = torch.where(along(done, x), closest.or_else(state.query), torch.where(new_turn, state.start, further))
        return EadState(
            trial=state.trial, query=query, queries=state.queries + 1, done=done, nearest=closest.point,
            distance=closest.distance, weight=weight, start=state.start,
            point=torch.where(new_turn, state.start, point), elastic=elastic,
        )  # fmt: skip

    def _kept_error(self, state: EadState, seen: Seen, elastic: Tensor) -> tuple[Nearest, Tensor]:
        """The error to keep, and its elastic net."""
        confident = seen.loss >= self.confidence if self.confidence else True
        closest = nearest(state, seen.label, self.ball, looked_at=confident)
        if self.rule == "L1":
            return closest, state.elastic
        better = closest.error & (elastic < state.elastic)
        point = torch.where(along(better, state.query), state.query, state.nearest)
        distance = torch.where(better, self.ball.distance(state.trial.x, state.query), state.distance)
        return Nearest(closest.error, better, point, distance), torch.where(better, elastic, state.elastic)
