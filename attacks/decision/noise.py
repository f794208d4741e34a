"""Additive noise: random points of the ball. The baseline that any attack with gradients must beat.

If noise breaks images that a gradient attack does not break, the model masks its gradients and is not robust (Athalye
et al. 2018, arXiv:1802.00420, section 3.1). With rotations and translations it is the random search of Engstrom et al.
2019, arXiv:1712.02779, whose worst of ten is `queries=10`.
Bad at: inputs of many dimensions; it is a baseline.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives.ball import NORMS
from robustkit.primitives.protocol import Seen, State, Trials, begin
from robustkit.primitives.queries import LabelOnlyAttack


@dataclass(frozen=True)
class Noise(LabelOnlyAttack):
    """Uniform random points of the ball, each independent of the ones before.

    Args:
        queries: points tried, at least 2.
    """

    _: KW_ONLY
    queries: int = 100

    norms = (*NORMS, "spatial", "rotation", "translation", "flow", "color", "recolor", "recolor_rgb")
    guesses = True

    def init(self, trials: Trials) -> State:
        return begin(trials, self.ball.random(trials.x, trials.key, 0))

    def step(self, state: State, seen: Seen) -> State:
        return self.guess(state, torch.ones_like(state.queries))

    def guess(self, state: State, steps: Tensor) -> State:
        """The states that follow: no answer changes them."""
        queries = state.queries + steps
        query = self.ball.random(state.trial.x, state.trial.key, queries)
        return replace(state, query=query, queries=queries, done=queries >= self.queries - 1)
