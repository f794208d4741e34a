"""Attacks on logits driven step by step without the engine, which would stop at a first error."""

from collections.abc import Iterator

from torch import nn

from robustkit.classifier.answers import answered
from robustkit.primitives.protocol import Attack, BestState, Trials


def states(method: Attack, model: nn.Module, trials: Trials) -> Iterator[BestState]:
    """The states after each query, to the end of the budget."""
    state = method.init(trials)
    while not state.done.all():
        state = method.step(state, answered(method, state, model))
        assert isinstance(state, BestState)
        yield state
