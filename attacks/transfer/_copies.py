"""The shared part of attacks that take their gradients at transformed copies of the iterate.

The query is a copy T(point), and the answer contains the gradient there; autograd backpropagates it through T to
the point. After the last copy of a step, the iterate takes a step with momentum (MI-FGSM) along the sum of the
gradients. Each copy of each image has its own random numbers, where other implementations draw one set for a whole
batch. In white-box use, a misclassified copy is a success only if it lies in the ball.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.ball import finer
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rows import along

from ..gradient._momentum import Momentum, MomentumState
from ._images import as_images, blurred, shrunk

_WIDEST_KERNEL = 999  # a limit, because the kernel pads the image on each side


@dataclass(frozen=True)
class CopiesState(MomentumState):
    """The iterate, its velocity, and the sum of the gradients at the copies of the current step."""

    source: Tensor  # [B, *S] the point of which the query is a copy
    total: Tensor  # [B, *S] sum of this step's gradients so far, each backpropagated to its source


S = TypeVar("S", bound=CopiesState)


@dataclass(frozen=True)
class Copies(Momentum):
    """Base of attacks that step along the gradients at transformed copies; each can be combined with DI and TI.

    Args:
        diversity: probability that a copy is resized and padded, as in DI-FGSM.
        resize: the smallest side after resizing, as a share of the image's.
        kernel: side of the Gaussian kernel that blurs the gradient, as in TI-FGSM: an odd number, 1 for none; None is
            15 for images of 224 pixels, less in proportion for smaller ones, at least 3.
    """

    _: KW_ONLY
    diversity: float = 0.0
    resize: float = 0.9
    kernel: int | None = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.share("diversity")
        self.share("resize")
        self.at_least_or_none(1, "kernel")
        limits.require_at_most(f"{type(self).__name__}: kernel", self.kernel or 1, _WIDEST_KERNEL)
        if self.kernel is not None and self.kernel % 2 == 0:
            raise UserError(f"{type(self).__name__}: kernel must be an odd number, not {self.kernel}.")

    @property
    def per_step(self) -> int:
        """Queries of one step."""
        return 1

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps * self.per_step + 1, self.steps * self.per_step)

    def init(self, trials: Trials) -> CopiesState:
        return self.with_query(self.begun(trials), torch.zeros_like(trials.x))

    def begun(self, trials: Trials) -> CopiesState:
        """The state before the first query is chosen, at the image."""
        x, zero = trials.x, torch.zeros_like(trials.x)
        return CopiesState(**vars(begin(trials, x)), point=x, velocity=zero, source=x, total=zero)

    def step(self, state: State, seen: Seen) -> CopiesState:
        assert isinstance(state, CopiesState)
        grad, queries = self.taken_back(state, seen.grad), state.queries + 1
        total, ends = state.total + self.weighted(state, grad), along(queries % self.per_step == 0, grad)
        velocity = torch.where(ends, self.accelerated(state.velocity, self.blurred(total)), state.velocity)
        climbed = self.ball.climb(state.trial.x, state.point, velocity, self.step_length)
        point, done = torch.where(ends, climbed, state.point), queries >= self.steps * self.per_step
        total = torch.where(ends, torch.zeros_like(total), total)
        state = CopiesState(state.trial, point, queries, done, point, velocity, state.source, total)
        return self.with_query(state, grad)

    def with_query(self, state: S, grad: Tensor) -> S:
        """The state with its next source and query; `grad` is the gradient at the last source."""
        source = self.next_source(state, grad)
        query = self.transformed(source, state.trial, state.queries)
        return replace(state, source=source, query=torch.where(along(state.done, query), state.point, query))

    def taken_back(self, state: CopiesState, grad: Tensor) -> Tensor:
        """`[B, *S]` the gradient at the source, given the one at its copy, the query."""
        with torch.enable_grad():
            source = state.source.detach().requires_grad_()
            copied = self.transformed(source, state.trial, state.queries)
            return torch.autograd.grad(copied, source, grad)[0]

    def transformed(self, source: Tensor, trials: Trials, number: Tensor) -> Tensor:
        """`[B, *S]` the copy for query `number` `[B]`, as a differentiable function of its source."""
        copied = self.copied(source, trials, number)
        if self.diversity == 0:
            return copied
        coin, share, top, left = noise.uniform(finer(trials.key), number, (4,)).unbind(1)
        smaller = shrunk(as_images(copied), self.resize + (1 - self.resize) * share, top, left).reshape(copied.shape)
        return torch.where(along(coin < self.diversity, copied), smaller, copied)

    def blurred(self, grad: Tensor) -> Tensor:
        """The gradient averaged with those of neighbouring pixels."""
        images = as_images(grad)
        side = _usual_kernel(max(images.shape[-2:])) if self.kernel is None else self.kernel
        return grad if side == 1 else blurred(images, side).reshape(grad.shape)

    def ahead(self, state: MomentumState) -> Tensor:
        return state.point

    def next_source(self, state: CopiesState, grad: Tensor) -> Tensor:
        """`[B, *S]` the source of the next query; `state` still has the last source, `grad` is the gradient there."""
        return self.ahead(state)

    def weighted(self, state: CopiesState, grad: Tensor) -> Tensor:
        """The gradient at the last source times its weight in the step's sum."""
        return grad

    def copied(self, source: Tensor, trials: Trials, number: Tensor) -> Tensor:
        """The attack's own transformation of `[B, *S]` points, row by row."""
        return source

    def value_radius(self, x: Tensor) -> float:
        """The change of each value at a point of the ball's surface where all values change equally."""
        return self.ball.eps if self.ball.norm == "Linf" else self.ball.eps / math.sqrt(x[0].numel())

    def offset(self, trials: Trials, number: Tensor, radius: float) -> Tensor:
        """`[B, *S]` uniform random numbers, at most `radius` times `value_radius`."""
        unit = noise.uniform(trials.key, number, trials.x.shape[1:]).to(trials.x)
        return (2 * unit - 1) * (radius * self.value_radius(trials.x))


def _usual_kernel(side: int) -> int:
    return min(15, max(3, side * 15 // 224 // 2 * 2 + 1))
