"""N-FGSM: one step from strong noise, without the projection that makes FGSM training collapse.

De Jorge et al. 2022, arXiv:2202.01181. As in the authors' code, the noise is also clipped to [0, 1], so
that the network never sees an invalid image. Ours differs: for norms other than Linf the noise comes from their own
ball. The images lie up to `(noise + 1) eps` away from the clean ones, so this makes training images only; it is not an
attack for evaluation and not in `attacks/`.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives import losses
from robustkit.primitives.ball import Ball
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials, begin


@dataclass(frozen=True)
class NFGSM(Attack):
    """One step of length eps from a random point, without projection.

    Args:
        noise: radius of the noise, in units of eps; the paper's k.
    """

    _: KW_ONLY
    noise: float = 2.0

    norms = ("Linf", "L2", "L1")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "noise")
        if self.ball.norm == "Linf" and self._noise_ball.eps > 1:
            raise UserError(f"Noise of {self.noise:g} times eps exceeds the range of pixel values; lower noise or eps.")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(2, 1)

    @property
    def _noise_ball(self) -> Ball:
        return type(self.ball)(self.noise * self.ball.eps)

    def init(self, trials: Trials) -> State:
        return begin(trials, self._noise_ball.random(trials.x, trials.key, 0))

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss("log-odds")(logits, trials.y, trials.loss_target)

    def step(self, state: State, seen: Seen) -> State:
        moved = state.query + self.ball.eps * self.ball.steepest(seen.grad, state.query)
        return replace(state, query=moved.clamp(0, 1), queries=state.queries + 1, done=torch.ones_like(state.done))
