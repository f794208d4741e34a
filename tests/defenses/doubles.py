"""Networks and watchers that misbehave, or remember what they see, in one way each."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.host.progress import Silent


def head() -> nn.Module:
    """A linear layer on the pixels of a digit."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


class Wrapped(nn.Module):
    """A network between a function of its images and a function of its logits."""

    def __init__(
        self, inner: nn.Module, before: Callable[[Tensor], Tensor] | None = None,
        after: Callable[[Tensor], Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.inner, self.before, self.after = inner, before, after

    def forward(self, x: Tensor) -> Any:
        logits = self.inner(x if self.before is None else self.before(x))
        return logits if self.after is None else self.after(logits)


class Activated(nn.BatchNorm2d):
    """A BatchNorm with an activation of its own, as some libraries have."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class Watch(Silent):
    """Calls a function after each step, and remembers the messages."""

    def __init__(self, after_step: Callable[[], object] = lambda: None) -> None:
        self.after_step = after_step
        self.messages: list[str] = []

    def training(self, text: str, share: float) -> None:
        self.after_step()

    def say(self, text: str) -> None:
        self.messages.append(text)


class Last(Watch):
    """Has a copy of the network as it was after the last step."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(lambda: setattr(self, "model", copy.deepcopy(network)))
        self.model = network


def at_step(step: int, action: Callable[[], object]) -> Watch:
    """A watch that calls a function after one step, without gradients."""
    left = [step]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            with torch.no_grad():
                action()

    return Watch(count)
