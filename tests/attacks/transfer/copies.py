"""The attacks on copies in plain loops over a small network, with autograd through the copies."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from robustkit.classifier.answers import answered
from robustkit.primitives import noise
from robustkit.primitives.protocol import Attack, Trials
from robustkit.testing.problems import Problem
from tests.problems import problem, trials

Gradient = Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]


def small(*shape: int, count: int = 4) -> Problem:
    """A smooth network and images."""
    return problem("mlp", *(shape or (2, 7, 6)), count=count)


def trials_of(made: Problem) -> Trials:
    return trials(made.x, made.y)


def gradient(made: Problem) -> Gradient:
    """The gradient of cross-entropy at a transformed point, in the point."""

    def at(point: Tensor, transform: Callable[[Tensor], Tensor] = lambda point: point) -> Tensor:
        point = point.detach().requires_grad_()
        loss = nn.functional.cross_entropy(made.model(transform(point)), made.y, reduction="sum")
        return torch.autograd.grad(loss, point)[0]

    return at


def followed(x: Tensor, direction: Callable[[int, Tensor, Tensor], Tensor], eps: float, steps: int = 3) -> Tensor:
    """Momentum steps in Linf along `direction(step, point, velocity)`."""
    point, velocity = x, torch.zeros_like(x)
    for step in range(steps):
        grad = direction(step, point, velocity)
        velocity = velocity + grad / grad.abs().mean(dim=tuple(range(1, grad.dim())), keepdim=True)
        point = (point + eps / steps * velocity.sign()).clamp(x - eps, x + eps).clamp(0, 1)
    return point


def offset(trials: Trials, number: int, radius: float) -> Tensor:
    """The random offset of the query of that number."""
    return (2 * noise.uniform(trials.key, number, trials.x.shape[1:]) - 1) * radius


def driven(method: Attack, made: Problem) -> Tensor:
    """The last point of the attack."""
    state = method.init(trials_of(made))
    while not state.done.all():
        state = method.step(state, answered(method, state, made.model))
    return state.query
