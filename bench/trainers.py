"""One epoch of adversarial training, by robustkit, by the loops that the field writes, by torchattacks and by ART.

Everybody gets the same: PGD in Linf from a random start, the same steps, the attack in eval mode and the outer step in
train mode, the cross-entropy of the adversarial images alone, torch's SGD with Nesterov momentum and weight decay, the
same images in batches of one size. What a trainer makes once (a trace, a wrapper, an optimizer) is not timed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from robustkit.defenses.inner_attack.crafting import noise_keys
from robustkit.defenses.inner_attack.objectives import AT
from robustkit.defenses.inner_attack.specification import inner_attack
from robustkit.defenses.training.images import TrainingImages
from robustkit.defenses.training.recipe import Recipe
from robustkit.defenses.training.stepping import Stepper
from robustkit.defenses.weights.folding import fold
from robustkit.defenses.weights.prior import prior
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit.data import TensorData, from_tensors
from robustkit.models.preprocessing import network_in

MOMENTUM, DECAY = 0.9, 5e-4


class Batch(NamedTuple):
    x: Tensor
    y: Tensor
    key: Tensor  # of robustkit's noise


class Task(NamedTuple):
    x: Tensor  # [N, *S] in [0, 1]
    y: Tensor  # [N]
    eps: float
    batch: int
    steps: int
    lr: float = 0.01
    seed: int = 0

    @property
    def step_size(self) -> float:
        return 2.5 * self.eps / self.steps

    @property
    def data(self) -> TensorData:
        return from_tensors(self.x, self.y, split="train")


Epoch = Callable[[], None]
Trainer = Callable[[nn.Module, Task], Epoch]  # changes the network
Start = Callable[[Batch], Tensor]
Gradient = Callable[[nn.Module, Tensor, Tensor], Tensor]


def robustkit(folded: bool = True, loss: str = "log-odds") -> Trainer:
    """The package's own stepper, as `finetune` drives it."""

    def prepared(model: nn.Module, task: Task) -> Epoch:
        network = network_in(model)
        recipe = Recipe(
            batch=task.batch, attack=f"pgd:steps={task.steps},loss={loss}", lr=task.lr, seed=task.seed,
            prior=f"gaussian:decay={DECAY}", momentum=MOMENTUM,
        )  # fmt: skip
        images = TrainingImages(task.data, recipe, torch.device("cpu"))
        model.train()
        view = fold(model, task.x[:8]) if folded else None
        inner = inner_attack(recipe.attack, "Linf", task.eps)
        stepper = Stepper(
            model, inner, AT(), recipe, prior(recipe.prior, network, len(task.y)),
            torch.optim.SGD(model.parameters(), task.lr, MOMENTUM, nesterov=True), None, view,
        )  # fmt: skip

        def epoch() -> None:
            for group in images.grouped(0):
                stepper.step([images.batch(0, ids) for ids in group], 1.0)

        return epoch

    return prepared


def plain(gradient: Gradient, start: Start | None = None) -> Trainer:
    """The loop that papers publish, in robustkit's order of images."""

    def prepared(model: nn.Module, task: Task) -> Epoch:
        optimizer, order = _optimizer(model, task), _order(task)

        def epoch() -> None:
            for batch in _batches(task, order):
                model.eval()
                point = (_uniform(batch, task) if start is None else start(batch)).clamp(0, 1)
                for _ in range(task.steps):
                    grad = gradient(model, point.requires_grad_(), batch.y)
                    moved = point.detach() + task.step_size * grad.sign()
                    point = (batch.x + (moved - batch.x).clamp(-task.eps, task.eps)).clamp(0, 1)
                model.train()
                _learn(model, optimizer, point, batch.y)

        return epoch

    return prepared


def through_weights(model: nn.Module, point: Tensor, y: Tensor) -> Tensor:
    """`.backward()`: the gradients of all weights are made too, and thrown away by the outer step's `zero_grad`."""
    F.cross_entropy(model(point), y).backward()  # type: ignore[no-untyped-call]
    assert point.grad is not None
    return point.grad


def zeroed_through_weights(model: nn.Module, point: Tensor, y: Tensor) -> Tensor:
    """The same, thrown away at every step."""
    model.zero_grad()
    return through_weights(model, point, y)


def in_image(model: nn.Module, point: Tensor, y: Tensor) -> Tensor:
    """`autograd.grad`: the gradient of the image alone."""
    return torch.autograd.grad(F.cross_entropy(model(point), y), point)[0]


def torchattacks(model: nn.Module, task: Task) -> Epoch:
    """Its PGD, and the outer step that everybody writes after it."""
    import torchattacks

    model.train()
    tool = torchattacks.PGD(model, eps=task.eps, alpha=task.step_size, steps=task.steps, random_start=True)
    optimizer, order = _optimizer(model, task), _order(task)

    def epoch() -> None:
        torch.manual_seed(task.seed)
        for batch in _batches(task, order):
            _learn(model, optimizer, tool(batch.x, batch.y), batch.y)

    return epoch


def art(model: nn.Module, task: Task) -> Epoch:
    """ART's AdversarialTrainer on its PGD, everything adversarial, in an order of its own."""
    from art.attacks.evasion import ProjectedGradientDescent
    from art.defences.trainer import AdversarialTrainer

    wrapped = _of_art(model, task)
    tool = ProjectedGradientDescent(
        wrapped, eps=task.eps, eps_step=task.step_size, max_iter=task.steps, num_random_init=1, batch_size=task.batch,
        verbose=False,
    )  # fmt: skip
    return _fit_by_art(AdversarialTrainer(wrapped, tool, ratio=1.0), task)


def art_madry(model: nn.Module, task: Task) -> Epoch:
    """ART's trainer of that name: the same, but it attacks 32 images at once and cannot be told otherwise."""
    from art.defences.trainer import AdversarialTrainerMadryPGD

    trainer = AdversarialTrainerMadryPGD(
        _of_art(model, task), eps=task.eps, eps_step=task.step_size, max_iter=task.steps, num_random_init=1
    )
    return _fit_by_art(trainer, task)


TRAINERS: dict[str, Trainer] = {
    "robustkit": robustkit(),
    "robustkit, not folded": robustkit(folded=False),
    ".backward()": plain(through_weights),
    ".backward(), zero_grad": plain(zeroed_through_weights),
    "autograd.grad": plain(in_image),
    "torchattacks": torchattacks,
    "ART AdversarialTrainer": art,
    "ART MadryPGD": art_madry,
}


def same_starts(task: Task) -> Start:
    """robustkit's random starts, for a comparison of weights."""
    ball = inner_attack(f"pgd:steps={task.steps}", "Linf", task.eps).attack.ball
    return lambda batch: ball.random(batch.x, batch.key, 0)


def _of_art(model: nn.Module, task: Task) -> Any:
    from art.estimators.classification import PyTorchClassifier

    return PyTorchClassifier(
        model, loss=nn.CrossEntropyLoss(), optimizer=_optimizer(model, task), nb_classes=10, device_type="cpu",
        input_shape=tuple(task.x.shape[1:]), clip_values=(0.0, 1.0),
    )  # fmt: skip


def _fit_by_art(trainer: Any, task: Task) -> Epoch:
    x, y = task.x.numpy(), task.y.numpy()

    def epoch() -> None:
        np.random.seed(task.seed)  # the generator that ART draws from
        torch.manual_seed(task.seed)
        trainer.fit(x, y, batch_size=task.batch, nb_epochs=1)

    return epoch


def _optimizer(model: nn.Module, task: Task) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), task.lr, MOMENTUM, nesterov=True, weight_decay=DECAY)


def _learn(model: nn.Module, optimizer: torch.optim.Optimizer, point: Tensor, y: Tensor) -> None:
    loss = F.cross_entropy(model(point.detach()), y)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _uniform(batch: Batch, task: Task) -> Tensor:
    return batch.x + torch.empty_like(batch.x).uniform_(-task.eps, task.eps)


def _order(task: Task) -> list[Sequence[int]]:
    images = TrainingImages(task.data, Recipe(batch=task.batch, seed=task.seed), torch.device("cpu"))
    return images.parted(images.order(0))


def _batches(task: Task, order: list[Sequence[int]]) -> Iterator[Batch]:
    for ids in order:
        yield Batch(task.x[ids], task.y[ids], noise_keys(task.seed, 0, torch.tensor(ids)))
