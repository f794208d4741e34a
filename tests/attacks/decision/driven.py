"""Attacks on labels driven to the end of their budget without the engine, which would stop at a first error."""

import torch
from robustkit.attacks.decision._label_search import LabelAttack
from torch import Tensor, nn

from robustkit.classifier.answers import answered
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Trials


def aimed(x: Tensor, y: Tensor, target: Tensor | None = None) -> Trials:
    """Trials that must reach `target`, or any wrong class."""
    none = torch.full_like(y, -1)
    target = none if target is None else target
    return Trials(x, y, target, target, torch.arange(len(x)) * 1_000_003 + 7, torch.zeros_like(y))


def driven(method: LabelAttack, model: nn.Module, trials: Trials) -> NearestState:
    """The state after all queries."""
    state = method.init(trials)
    assert isinstance(state, NearestState)
    while not state.done.all():
        state = method.step(state, answered(method, state, model))
    assert isinstance(state, NearestState)
    return state
