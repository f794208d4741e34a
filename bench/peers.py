"""PGD-40 of other packages, and the loop that no package can beat without stopping early.

Everybody gets the same: Linf, random start, 40 steps of 2.5 * eps / 40, the same batches, frozen weights (which spares
ART the weight gradients that its `backward()` computes otherwise). Each runner returns which images are still robust,
because a robust accuracy is what it was called for; for tools that return only points, one forward decides it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from robustkit.attacks import PGD
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit import Classifier, attack

STEPS = 40


class Task(NamedTuple):
    x: Tensor  # [N, *S]
    y: Tensor  # [N]
    eps: float
    batch: int
    seed: int
    steps: int = STEPS

    @property
    def step_size(self) -> float:
        return 2.5 * self.eps / self.steps


Runner = Callable[[nn.Module, Task], Tensor]  # -> [N] bool, still classified correctly


def bare(model: nn.Module, task: Task) -> Tensor:
    """40 forwards and input gradients, sign, clamp: no start, no verdict, no early exit."""
    for x, y in _batches(task):
        low, high = (x - task.eps).clamp(min=0), (x + task.eps).clamp(max=1)
        point = x.clone()
        for _ in range(task.steps):
            point.requires_grad_()
            grad = torch.autograd.grad(F.cross_entropy(model(point), y, reduction="sum"), point)[0]
            point = (point.detach() + task.step_size * grad.sign()).clamp(low, high)
    return torch.ones(len(task.y), dtype=torch.bool)


def robustkit(fold: bool = True) -> Runner:
    def run(model: nn.Module, task: Task) -> Tensor:
        pgd = PGD(eps=task.eps, steps=task.steps, step_size=task.step_size)
        classifier = Classifier(model, fold=fold)
        result = attack(classifier, task.x, task.y, pgd, batch_size=task.batch, seed=task.seed)
        return result.clean_correct & ~result.success

    return run


def torchattacks(model: nn.Module, task: Task) -> Tensor:
    import torchattacks

    torch.manual_seed(task.seed)
    tool = torchattacks.PGD(model, eps=task.eps, alpha=task.step_size, steps=task.steps, random_start=True)
    return _judged(model, task, torch.cat([tool(x, y) for x, y in _batches(task)]))


def foolbox(model: nn.Module, task: Task) -> Tensor:
    import foolbox

    torch.manual_seed(task.seed)
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=task.x.device)
    tool = foolbox.attacks.LinfPGD(abs_stepsize=task.step_size, steps=task.steps, random_start=True)
    # The third value is its own verdict at the points it returns.
    return ~torch.cat([tool(wrapped, x, y, epsilons=task.eps)[2] for x, y in _batches(task)])


def art(model: nn.Module, task: Task) -> Tensor:
    from art.attacks.evasion import ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    np.random.seed(task.seed)  # the generator that ART draws from
    torch.manual_seed(task.seed)
    wrapped = PyTorchClassifier(
        model, loss=nn.CrossEntropyLoss(), input_shape=tuple(task.x.shape[1:]), nb_classes=10, clip_values=(0.0, 1.0),
        device_type="cpu",
    )  # fmt: skip
    tool = ProjectedGradientDescentPyTorch(
        wrapped, norm=np.inf, eps=task.eps, eps_step=task.step_size, max_iter=task.steps, num_random_init=1,
        batch_size=task.batch, verbose=False,
    )  # fmt: skip
    return _judged(model, task, torch.from_numpy(tool.generate(task.x.numpy(), task.y.numpy())))


RUNNERS: dict[str, Runner] = {
    "robustkit": robustkit(),
    "robustkit fold=False": robustkit(fold=False),
    "torchattacks": torchattacks,
    "foolbox": foolbox,
    "ART": art,
}


def _batches(task: Task) -> zip:  # type: ignore[type-arg]
    return zip(task.x.split(task.batch), task.y.split(task.batch), strict=True)


@torch.no_grad()
def _judged(model: nn.Module, task: Task, points: Tensor) -> Tensor:
    return torch.cat([model(part).argmax(1) for part in points.split(task.batch)]) == task.y
