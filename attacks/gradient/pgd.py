"""PGD: repeated steepest ascent from a random start, projected onto the ball after each step.

Madry et al. 2018, arXiv:1706.06083. Ours differs: the loss is the non-saturating form of cross-entropy, L1 steps change
only the values of the largest 5 % of the gradient (Tramer & Boneh 2019), and a trial ends as soon as its image is
misclassified. With `odi_steps` (Tashiro et al. 2020, arXiv:2003.06878) a trial begins with steps of length eps that
climb a random combination of the logits, so that restarts begin at points with different outputs.
L0 is Croce & Hein 2019, arXiv:1909.05040, for values instead of pixels; it starts with random values set to 0 or 1.
Bad at: models that mask gradients; a large `step_size` with few `steps`.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ascent import SteepestAscent, step_unit
from robustkit.primitives.ball import NORMS
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

_L0_STEP = 0.15  # the authors' 120000 / 255 for gradients of sum 1, divided by the 3072 values of CIFAR-10


@dataclass(frozen=True)
class PGD(SteepestAscent):
    """Projected gradient descent (on the negated loss).

    Args:
        steps: gradient steps per trial.
        step_size: length of a step, measured as eps is (not a share of eps); None is 2.5 * eps / steps (L0: 0.15 for a
            value of mean gradient; frame: 2.5 / steps).
        random_start: begin at a random point of the ball instead of the image itself.
        odi_steps: steps before the others that climb a random combination of the logits; 2 in the paper.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
    """

    _: KW_ONLY
    steps: int = 40
    random_start: bool = True
    odi_steps: int = 0

    norms = (*NORMS, "frame", "spatial", "rotation", "translation", "flow", "color", "recolor", "recolor_rgb")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "odi_steps")

    @property
    def cost(self) -> TrialCost:
        queries = self.odi_steps + self.steps
        return TrialCost(queries + 1, queries)

    @property
    def step_length(self) -> float:
        if self.step_size is not None:
            return self.step_size
        return _L0_STEP if self.ball.norm == "L0" else 2.5 * step_unit(self.ball) / self.steps

    def start(self, trials: Trials) -> Tensor:
        return self.ball.random(trials.x, trials.key, 0) if self.random_start else self.ball.origin(trials.x)

    def objective_at(self, logits: Tensor, state: State) -> Tensor:
        climbed = self.objective(logits, state.trial)
        if not self.odi_steps:
            return climbed
        weights = 2 * noise.uniform(state.trial.key, 1, logits.shape[1:]).to(logits) - 1
        return torch.where(state.queries < self.odi_steps, (weights * logits).sum(1), climbed)

    def step(self, state: State, seen: Seen) -> State:
        if not self.odi_steps:
            return super().step(state, seen)
        queries = state.queries + 1
        length = torch.where(state.queries < self.odi_steps, step_unit(self.ball), self.step_length).to(seen.grad)
        query = self.ball.climb(state.trial.x, state.query, seen.grad, along(length, seen.grad))
        return replace(state, query=query, queries=queries, done=queries >= self.odi_steps + self.steps)
