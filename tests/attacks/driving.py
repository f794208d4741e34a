"""Drives the states of one attack to their end, without the engine."""

import torch
from torch import Tensor, nn

from robustkit.classifier.answers import answered
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Attack, Trials


def last_state(method: Attack, model: nn.Module, trials: Trials) -> NearestState:
    """The states after the last step of the slowest row."""
    state = method.init(trials)
    while not state.done.all():
        after = method.step(state, answered(method, state, model))
        state = state.where(state.done, after)
    assert isinstance(state, NearestState)
    return state


def untargeted(x: Tensor, y: Tensor, restart: int = 0) -> Trials:
    """Trials in which any wrong class will do."""
    none = torch.full_like(y, -1)
    return Trials(x, y, none, none, torch.arange(len(x)), torch.full_like(y, restart))


def towards(x: Tensor, y: Tensor, target: Tensor) -> Trials:
    """Trials in which the target must be reached."""
    return Trials(x, y, target, target, torch.arange(len(x)), torch.zeros_like(y))


def nearest_of_all_classes(method: Attack, model: nn.Module, x: Tensor, y: Tensor, classes: int) -> Tensor:
    """`[N]` the distances of the nearest errors over trials that aim at each of the wrong classes."""
    none = torch.full_like(y, -1)
    distances = [
        last_state(method, model, Trials(x, y, (y + shift) % classes, none, none, none + 1)).distance
        for shift in range(1, classes)
    ]
    return torch.stack(distances).amin(0)
