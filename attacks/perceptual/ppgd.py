"""PPGD: steps to the highest linearised loss at a given LPIPS distance, each brought back into the ball.

Laidlaw, Singla & Feizi 2021, arXiv:2006.12655, section 4, perceptual PGD; constants of the authors' code. The step
solves a linear system in J^T J, for the features' Jacobian J, by conjugate gradients; a product with it is the gradient
of half the squared change of the features, a little way along the vector. Ours differs: the Jacobian's transpose is
taken at the end of that way, which needs no second graph; the way has one length, whatever the vector's; each image has
its own number of steps back.
Bad at: large radii, where features are not linear: `lpa` breaks more.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives.perceptual import PerceptualAttack, PerceptualSeen, PerceptualState
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

_AWAY = 0.01  # L2 length of the way along which features are compared


@dataclass(frozen=True)
class PpgdState(PerceptualState):
    """The state of one trial."""

    taken: Tensor  # [B] int64 steps so far
    tried: Tensor  # [B] int64 queries on the way back into the ball since the last step
    turn: Tensor  # [B] int64 conjugate gradient steps so far, -1 where no step is being solved
    # of the step that is being solved
    point: Tensor  # [B, *S] where it begins
    anchor: Tensor  # [B, F] features there
    residual: Tensor  # [B, *S]
    search: Tensor  # [B, *S] conjugate direction
    solution: Tensor  # [B, *S] direction of the step so far
    product: Tensor  # [B, *S] product of the solution and J^T J


@dataclass(frozen=True)
class PPGD(PerceptualAttack):
    """Perceptual projected gradient descent.

    Args:
        steps: steps of the attack.
        solver_steps: conjugate gradient iterations for each step.
        step_size: LPIPS length of a step; None is 2 eps / steps.
        projections: the most steps back into the ball after each step; then the step is undone.
    """

    _: KW_ONLY
    steps: int = 5
    solver_steps: int = 5
    step_size: float | None = None
    projections: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "solver_steps")
        self.at_least(0, "projections")
        self.at_least_or_none(0.0, "step_size")

    @property
    def cost(self) -> TrialCost:
        queries = 1 + self.steps * self.solver_steps + (self.steps + 1) * (self.projections + 2)
        return TrialCost(queries + 3, queries)

    def init(self, trials: Trials) -> PpgdState:
        start, none, x = self.at_image(trials), torch.zeros_like(trials.y), trials.x
        return PpgdState(
            **vars(start), taken=none, tried=none, turn=none - 1, point=x, anchor=start.clean,
            residual=torch.zeros_like(x), search=torch.zeros_like(x), solution=torch.zeros_like(x),
            product=torch.zeros_like(x),
        )  # fmt: skip

    def perceptual_objective(self, logits: Tensor, features: Tensor, state: State) -> Tensor:
        assert isinstance(state, PpgdState)
        distance = self.distance(state, features)
        loss = self.capped_loss(logits, state.trial)
        outside = (distance > self.ball.eps) & (state.queries > 0)
        climbed = torch.where(outside, -distance, loss)
        changed = (features - state.anchor.to(features)).square().sum(1) / 2
        return torch.where(state.turn >= 0, changed, climbed)

    def step(self, state: State, seen: Seen) -> PpgdState:
        assert isinstance(state, PpgdState)
        assert isinstance(seen, PerceptualSeen)
        x, queries, features = state.trial.x, state.queries + 1, seen.features.to(state.clean)
        first, solving = state.queries == 0, state.turn >= 0
        clean = torch.where(along(first, features), features, state.clean)
        excess = self.distance(state, features) - self.ball.eps
        outside = ~first & ~solving & (excess > 0)
        begins = ~first & ~solving & ~outside & (state.taken < self.steps)
        done = ~first & ~solving & ~outside & (state.taken >= self.steps)

        solved = self._solved(state, seen.grad)
        residual = torch.where(along(begins, x), seen.grad, solved.residual)
        search = torch.where(along(begins, x), seen.grad, solved.search)
        solution, product = (
            torch.where(along(begins, x), 0, each) for each in (solved.solution, solved.product)
        )  # fmt: skip
        point = torch.where(along(begins, x), state.query, state.point)
        anchor = torch.where(along(begins, features), features, state.anchor)
        turn = torch.where(begins, 0, torch.where(solving, state.turn + 1, state.turn))
        ends = solving & (turn >= self.solver_steps)

        back = self.stepped_back(state.query, excess, -seen.grad)
        back = torch.where(along(state.tried < self.projections, x), back, torch.where(
            along(state.taken > 0, x), state.point, x))  # fmt: skip
        query = torch.where(along(outside, x), back, state.query)
        query = torch.where(along(begins | (solving & ~ends), x), point + _AWAY * _unit(search), query)
        query = torch.where(along(ends, x), (point + self._stride(solution, product)).clamp(0, 1), query)
        query = torch.where(along(first, x), self.ball.random(x, state.trial.key, 0), query)
        spent = queries >= self.cost.backwards
        return PpgdState(
            state.trial, torch.where(along(done, x), state.query, query), queries, done | spent, clean,
            taken=state.taken + ends, tried=torch.where(outside, state.tried + 1, torch.where(ends, 0, state.tried)),
            turn=torch.where(ends, -1, turn), point=point, anchor=anchor, residual=residual, search=search,
            solution=solution, product=product,
        )  # fmt: skip

    def _solved(self, state: PpgdState, slope: Tensor) -> PpgdState:
        """The state after one step of conjugate gradients, in the rows that solve; others are as they were."""
        image = slope * along(_length(state.search) / _AWAY, slope)  # the product of J^T J and the direction
        before = _dot(state.residual, state.residual)
        curvature = _dot(state.search, image)
        goes = (state.turn >= 0) & (curvature > 0)
        share = along(torch.where(goes, before / curvature.clamp(min=1e-30), 0).to(slope), slope)
        residual = state.residual - share * image
        turned = along((_dot(residual, residual) / before.clamp(min=1e-30)).to(slope), slope)
        search = torch.where(along(goes, slope), residual + turned * state.search, state.search)
        return replace(
            state, residual=residual, search=search, solution=state.solution + share * state.search,
            product=state.product + share * image,
        )  # fmt: skip

    def _stride(self, solution: Tensor, product: Tensor) -> Tensor:
        """The step, scaled to its LPIPS length by the linearised features."""
        length = 2 * self.ball.eps / self.steps if self.step_size is None else self.step_size
        moved = _dot(solution, product).clamp(min=1e-30).sqrt()
        return along((length / moved).to(solution), solution) * solution


def _dot(one: Tensor, other: Tensor) -> Tensor:
    return (one.double() * other.double()).flatten(1).sum(1)


def _length(values: Tensor) -> Tensor:
    return _dot(values, values).sqrt().to(values)


def _unit(values: Tensor) -> Tensor:
    return values / along(_length(values).clamp(min=1e-30), values)
