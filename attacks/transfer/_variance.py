"""What VMI-FGSM and VNI-FGSM share: gradients corrected by how they vary around the last iterate."""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives.protocol import Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from ._copies import Copies, CopiesState


@dataclass(frozen=True)
class VarianceState(CopiesState):
    """A step queries the iterate first, which moves it, and then the neighbours for the next correction."""

    around: Tensor  # [B, *S] the iterate before the move, whose neighbours are queried
    grad: Tensor  # [B, *S] the gradient that moved it, without correction


@dataclass(frozen=True)
class VarianceTuning(Copies):
    """Base of variance tuning.

    Args:
        copies: number of neighbours whose gradients are averaged; N in the paper.
        neighborhood: largest difference of a neighbour's values from the iterate's, in units of eps; beta in the paper.
    """

    _: KW_ONLY
    copies: int = 20
    neighborhood: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "copies")
        self.at_least(0.0, "neighborhood")

    @property
    def per_step(self) -> int:
        return 1 + self.copies

    @property
    def queries(self) -> int:
        """Queries of one trial; the last step needs no correction after it."""
        return self.steps * self.per_step - self.copies

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.queries + 1, self.queries)

    def begun(self, trials: Trials) -> VarianceState:
        return VarianceState(**vars(super().begun(trials)), around=trials.x, grad=torch.zeros_like(trials.x))

    def step(self, state: State, seen: Seen) -> VarianceState:
        assert isinstance(state, VarianceState)
        grad, queries, zero = self.taken_back(state, seen.grad), state.queries + 1, torch.zeros_like(state.grad)
        moves, first = along(state.queries % self.per_step == 0, grad), along(state.queries == 0, grad)
        mean = state.total / self.copies if self.copies else state.grad
        corrected = grad + torch.where(first, zero, mean - state.grad)
        faster = self.accelerated(state.velocity, self.blurred(corrected))
        velocity = torch.where(moves, faster, state.velocity)
        climbed = self.ball.climb(state.trial.x, state.point, velocity, self.step_length)
        new = VarianceState(
            state.trial, state.query, queries, queries >= self.queries,
            point=torch.where(moves, climbed, state.point), velocity=velocity, source=state.source,
            total=torch.where(moves, zero, state.total + grad),
            around=torch.where(moves, state.point, state.around), grad=torch.where(moves, grad, state.grad),
        )  # fmt: skip
        return self.with_query(new, grad)

    def next_source(self, state: CopiesState, grad: Tensor) -> Tensor:
        assert isinstance(state, VarianceState)
        ahead, neighbour = self.ahead(state), state.around + self.offset(state.trial, state.queries, self.neighborhood)
        return torch.where(along(state.queries % self.per_step == 0, ahead), ahead, neighbour)
