"""PGN: MI-FGSM that penalises the norm of the gradient, to end where the loss is high and flat.

Ge et al. 2023, arXiv:2306.05225: the gradient of the penalty is a Hessian-vector product, estimated from two gradients:
one at a random neighbour of the iterate, one a step downhill from there. A copy thus costs two queries. In L2, the
largest difference of each value is divided by the square root of the number of values.
Bad at: small budgets; a step costs 40 queries.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives.rows import along

from ..gradient._momentum import normalised
from ._copies import Copies, CopiesState


@dataclass(frozen=True)
class PGN(Copies):
    """Penalizing gradient norm.

    Args:
        copies: neighbours per step; N in the paper.
        neighborhood: largest difference of a neighbour's values from the iterate's, in units of eps; zeta in the paper.
        balance: weight of the second gradient; the first has the rest. delta in the paper.
    """

    _: KW_ONLY
    copies: int = 20
    neighborhood: float = 3.0
    balance: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "copies")
        self.at_least(0.0, "neighborhood")
        self.share("balance")

    @property
    def per_step(self) -> int:
        return 2 * self.copies

    def weighted(self, state: CopiesState, grad: Tensor) -> Tensor:
        share = torch.where(state.queries % 2 == 0, 1 - self.balance, self.balance)
        return along(share, grad).to(grad) * grad

    def next_source(self, state: CopiesState, grad: Tensor) -> Tensor:
        neighbour = self.ahead(state) + self.offset(state.trial, state.queries, self.neighborhood)
        downhill = state.source - self.step_length * self.in_steps(normalised(grad))
        return torch.where(along(state.queries % 2 == 0, grad), neighbour, downhill)
