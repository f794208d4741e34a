"""Gaussian noise in place of an attack, to train networks for randomized smoothing.

Cohen, Rosenfeld & Kolter 2019, arXiv:1902.02918, section 4. The noise may leave [0, 1] and the
ball, as it does in smoothing. It makes training images only; it is not an attack for evaluation and not in `attacks/`.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials, begin


@dataclass(frozen=True)
class Gaussian(Attack):
    """One noisy copy of each image, without a query.

    Args:
        sigma: standard deviation, in units of pixels in [0, 1].
    """

    _: KW_ONLY
    sigma: float = 0.25

    sees = "labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "sigma")
        if self.sigma == 0:
            raise UserError("Noise of sigma=0 changes no image; give a positive sigma.")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(1, 0)

    def init(self, trials: Trials) -> State:
        x = trials.x
        state = begin(trials, x + self.sigma * noise.normal(trials.key, 0, x.shape[1:]).to(x))
        return replace(state, done=torch.ones_like(state.done))

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return logits.new_zeros(len(logits))

    def step(self, state: State, seen: Seen) -> State:
        return state
