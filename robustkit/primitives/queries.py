"""Bases for black-box attacks: a budget of queries, none of which needs a gradient."""

from dataclasses import KW_ONLY, dataclass
from typing import Final

from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.protocol import Attack, TrialCost, Trials

# Queries after which the distance of the nearest error is noted, and at which curves have their points.
CHECKPOINTS: Final = tuple(digit * 10**zeros for zeros in range(9) for digit in (1, 2, 5))


@dataclass(frozen=True)
class QueryBudget(Attack):
    """Base of attacks that have a number of queries.

    Args:
        queries: forward passes per trial, at least 2.
    """

    _: KW_ONLY
    queries: int = 5000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "queries")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.queries, 0)


class ScoreAttack(QueryBudget):
    """Base of attacks that see logits, climb their margin, and keep the best point."""

    sees = "logits"
    keeps_best = True

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss("margin")(logits, trials.y, trials.loss_target)


class LabelOnlyAttack(QueryBudget):
    """Base of attacks that see labels and nothing else."""

    sees = "labels"

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return logits.new_zeros(len(logits))
