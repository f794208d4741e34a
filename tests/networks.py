"""Small networks and wrappers around networks that the tests share; each shows one trait."""

import os
import random
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn


class Constant(nn.Module):
    """Returns one class for every input, with a gradient that leads nowhere."""

    def __init__(self, label: int, classes: int = 10) -> None:
        super().__init__()
        self.label, self.classes = label, classes

    def forward(self, x: Tensor) -> Tensor:
        bumps = 0.01 * torch.stack([x.flatten(1).mean(1) * (number + 1) for number in range(self.classes)], 1)
        return bumps + 50 * nn.functional.one_hot(torch.tensor(self.label), self.classes)


class Rounding(nn.Module):
    """Rounds each value to a multiple of 1 / levels, so that the gradient is zero."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x * self.levels) / self.levels


class Changed(nn.Module):
    """A model with a function before it, or after it, or both."""

    def __init__(
        self,
        model: nn.Module,
        after: Callable[[Tensor], object] | None = None,
        before: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.after, self.before = model, after, before

    def forward(self, x: Tensor) -> object:
        logits = self.model(x if self.before is None else self.before(x))
        return logits if self.after is None else self.after(logits)


class Rival(nn.Module):
    """Two classes: the first has a constant logit, the other the value of a function of each image."""

    def __init__(self, function: Callable[[Tensor], Tensor], constant: float) -> None:
        super().__init__()
        self.function, self.constant = function, constant

    def forward(self, x: Tensor) -> Tensor:
        value = self.function(x.double().flatten(1))
        return torch.stack([torch.full_like(value, self.constant), value], 1)


def switched_off(model: nn.Module, value: float) -> nn.Module:
    """The model with one class more, whose logit is always `-value`."""
    return Changed(model, lambda logits: torch.cat([logits, torch.full_like(logits[:, :1], -value)], 1))


class Noisy(nn.Module):
    """A model that sees its input with normal noise from one of the three generators that models draw from."""

    def __init__(self, model: nn.Module, source: str = "torch", spread: float = 0.1) -> None:
        super().__init__()
        self.model, self.source, self.spread = model, source, spread

    def forward(self, x: Tensor) -> Tensor:
        noise = {
            "torch": lambda: torch.randn(x.shape, device=x.device),
            "numpy": lambda: torch.from_numpy(np.random.standard_normal(x.shape)).float(),
            # One number per row: Python draws thousands of times more slowly than torch.
            "python": lambda: torch.tensor([random.gauss(0, 1) for _ in x]).view(-1, *[1] * (x.dim() - 1)),
        }[self.source]()
        return self.model(x + self.spread * noise)


class Recording(nn.Module):
    """Keeps its inputs and the types of its outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.inputs: list[Tensor] = []
        self.types: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        self.inputs.append(x.detach())
        self.types.append(logits.dtype)
        return logits

    @property
    def rows(self) -> int:
        return sum(len(x) for x in self.inputs)


class Failing(nn.Module):
    """Raises in every call after the first `calls`, in its forward or its backward; never while `calls` is None."""

    def __init__(
        self,
        model: nn.Module,
        calls: int | None = None,
        where: str = "forward",
        error: type[BaseException] = RuntimeError,
    ) -> None:
        super().__init__()
        self.model, self.where = model, where
        # Private attributes are no part of the fingerprint by which a run recognises its models.
        self._calls, self._error = calls, error
        self.train(model.training)

    def fail_after(self, calls: int | None) -> None:
        self._calls = calls

    def forward(self, x: Tensor) -> Tensor:
        if self._calls is not None:
            self._calls -= 1
            if self.where == "forward":
                self._check()
        logits = self.model(x)
        if self.where == "backward" and logits.requires_grad:
            logits.register_hook(lambda grad: self._check())
        return logits

    def _check(self) -> None:
        if self._calls is not None and self._calls < 0:
            raise self._error("on purpose")


class AlwaysTraining(nn.Module):
    """A model whose modules stay in train mode."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def train(self, mode: bool = True) -> nn.Module:
        return super().train(True)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


class Private(nn.Module):
    """A model with noise on its logits that no seed of a global generator fixes."""

    def __init__(self, model: nn.Module, source: str, spread: float = 1.0) -> None:
        super().__init__()
        self.model, self.source, self.spread = model, source, spread
        self._torch, self._numpy, self._python = torch.Generator(), np.random.default_rng(0), random.Random(0)
        self._calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self._calls += 1
        draws: dict[str, Callable[[], float]] = {
            "torch.Generator": lambda: torch.rand((), generator=self._torch).item(),
            "numpy's Generator": self._numpy.random,
            "random.Random": self._python.random,
            "os.urandom": lambda: os.urandom(1)[0] / 256,
            "the clock": lambda: time.perf_counter_ns() % 997 / 997,
            "a count of its calls": lambda: self._calls % 2,
        }
        number = draws[self.source]()
        logits: Tensor = self.model(x)
        return logits + self.spread * number * torch.arange(logits.shape[1])


class Coin(nn.Module):
    """Two classes by the first pixel, right with probability `right` in each row, whatever the other pixels."""

    def __init__(self, right: float = 0.7) -> None:
        super().__init__()
        self.right = right

    def forward(self, x: Tensor) -> Tensor:
        side = torch.where(torch.rand(len(x)) < self.right, 1.0, -1.0) * (x.flatten(1)[:, 0] - 0.5)
        return torch.stack([side, -side], 1)


class OneOfThree(nn.Module):
    """An ensemble that draws one member for the whole batch; one member in three has the opposite logits."""

    def __init__(self, model: nn.Module, opposite: float = 1 / 3) -> None:
        super().__init__()
        self.model, self.opposite = model, opposite

    def forward(self, x: Tensor) -> Tensor:
        sign = -1 if torch.rand(()).item() < self.opposite else 1
        return sign * self.model(x)


class BatchStatistics(nn.Module):
    """Dropout, then BatchNorm with the statistics of the batch, in a forward that `eval()` does not reach."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.dropout(x, 0.1, training=True)
        logits: Tensor = self.model(nn.functional.batch_norm(x, None, None, training=True))
        return logits


class Falsified(torch.autograd.Function):
    """The image, with the gradient at every so many values times a factor."""

    @staticmethod
    def forward(ctx, x, factor, every):
        ctx.factor, ctx.every = factor, every
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        factors = torch.ones(grad[0].numel())
        factors[:: ctx.every] = ctx.factor
        return grad * factors.reshape(grad.shape[1:]), None, None
