"""PGN: MI-FGSM that penalises the norm of the gradient, to end where the loss is high and flat.

Ge et al. 2023, arXiv:2306.05225: the gradient of the penalty is a Hessian's product, estimated from a second gradient
one step down the first. Both are taken at random neighbours of the iterate, so a copy costs two queries. In L2 a
neighbour is as far away as one whose values all move alike.
Bad at: few passes; a step costs 40 queries.
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
        copies: N of the paper, neighbours per step.
        neighborhood: zeta of the paper, how far each value of a neighbour may lie, in units of eps.
        balance: delta of the paper, share of the second gradient.
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
