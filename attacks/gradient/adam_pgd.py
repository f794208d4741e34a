"""Adam-PGD: projected gradient ascent with the steps of Adam, in which each value of the image has its own step size.

Uesato et al. 2018, arXiv:1802.05666, and Gowal et al. 2019, arXiv:1910.09338, with the step sizes of Gowal et al. 2020,
arXiv:2010.03593: 3 eps in the first half of the steps, a tenth of it in the third quarter and a thousandth in the last.
Ours differs: gradients are divided by the largest value of the first one, so that the scale of the logits does not
matter; in L2, a step has Adam's direction and the length of the step size. (Foolbox gives Adam the signs of the
gradients instead of the gradients.)
Bad at: models that mask gradients. At equal cost it lies between PGD and APGD (bench/attacks.md).
"""

from dataclasses import KW_ONLY, dataclass
from functools import cache

import torch
from torch import Tensor

from robustkit.primitives.ascent import Ascent
from robustkit.primitives.protocol import Seen, State, Trials, begin
from robustkit.primitives.rows import along

from .._adam import Moments, adam, at_rest
from .._schedules import at, table


@dataclass(frozen=True)
class AdamState(State):
    """The state of one trial."""

    scale: Tensor  # [B] largest absolute value of the first gradient that is not zero everywhere
    moments: Moments


@dataclass(frozen=True)
class AdamPGD(Ascent):
    """Projected gradient ascent with Adam, in Linf or L2.

    Args:
        steps: gradient steps per trial.
        step_size: step size in the first half of the steps, in units of the input; None is 3 eps.
        random_start: begin at a random point of the ball instead of the image itself.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
    """

    _: KW_ONLY
    steps: int = 40
    step_size: float | None = None
    random_start: bool = True

    norms = ("Linf", "L2")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least_or_none(0.0, "step_size")

    def init(self, trials: Trials) -> AdamState:
        start = self.ball.random(trials.x, trials.key, 0) if self.random_start else trials.x
        scale = torch.zeros(len(start), device=start.device, dtype=start.dtype)
        return AdamState(**vars(begin(trials, start)), scale=scale, moments=at_rest(start))

    def step(self, state: State, seen: Seen) -> AdamState:
        assert isinstance(state, AdamState)
        scale = torch.where(state.scale > 0, state.scale, seen.grad.flatten(1).abs().amax(1))
        grad = seen.grad / along(scale.clamp(min=torch.finfo(scale.dtype).tiny), seen.grad)
        direction, moments = adam(state.moments, grad, state.queries, self.steps)
        first = 3 * self.ball.eps if self.step_size is None else self.step_size
        length = along(first * at(state.queries, _decay(self.steps), grad), grad)
        x, queries = state.trial.x, state.queries + 1
        if self.ball.norm == "Linf":
            query = self.ball.project(x, state.query + length * direction)
        else:
            query = self.ball.climb(x, state.query, direction, length)
        return AdamState(state.trial, query, queries, queries >= self.steps, scale, moments)


@cache
def _decay(steps: int) -> Tensor:
    """`[steps]` step sizes, as shares of the first one."""
    return table(1.0 if 2 * turn < steps else 0.1 if 4 * turn < 3 * steps else 1e-3 for turn in range(steps))
