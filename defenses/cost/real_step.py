"""Measure a training's own step on one batch: its time, its arithmetic and its memory.

The step is the `Stepper` that `finetune` would build, in the layers and the layout that it would use, so every choice
of the recipe is part of what is measured. The model is restored afterwards.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from robustkit.classifier.isolation import exact_arithmetic, untouched
from robustkit.data import Dataset
from robustkit.models.preprocessing import network_in

from ..inner_attack.specification import InnerAttack
from ..training.batches import AttackedBatch
from ..training.images import TrainingImages
from ..training.recipe import Recipe
from ..training.setup import build_stepper, frozen_in, prepared_network
from ..training.stepping import Stepper
from ..weights.batchnorm import modes
from ..weights.freezing import chosen
from ..weights.prior import Prior, prior
from .measured import Flops, Memory, flops_of, mib_of, seconds_of

_FLOPS_ROWS = 4  # images of which arithmetic is counted; shares do not depend on how many
_FOLD_ROWS = 8


@contextmanager
def real_step(model: nn.Module, data: Dataset, inner: InnerAttack, recipe: Recipe) -> Iterator["RealStep"]:
    """The step of a training with this recipe while the context lasts; the model is restored.

    Of gradual unfreezing the last phase is used, which costs most.
    """
    with ExitStack() as stack:
        stack.enter_context(untouched(model))
        stack.enter_context(_weights_restored(model))
        stack.enter_context(exact_arithmetic(next(model.parameters()).device))
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        model.zero_grad(set_to_none=True)
        stack.callback(model.zero_grad, set_to_none=True)
        stack.enter_context(prepared_network(model, recipe))
        step = RealStep(model, data, inner, recipe)
        stack.enter_context(frozen_in(step.network, recipe, recipe.epochs - 1))
        model.train()
        yield step


class RealStep:
    """A Stepper and a batch of training images; use it inside `real_step`."""

    def __init__(self, model: nn.Module, data: Dataset, inner: InnerAttack, recipe: Recipe) -> None:
        self.model, self.network, self.recipe = model, network_in(model), recipe
        self.device = next(model.parameters()).device
        # A small data set is repeated: only the size of the batch matters here.
        ids = [number % len(data) for number in range(recipe.batch)]
        self.batch = TrainingImages(data, recipe, self.device).batch(0, ids)
        self.stepper = _still_stepper(model, data, inner, recipe, self.batch.x[:_FOLD_ROWS])

    def seconds(self) -> float:
        """Time of a batch: attack, loss, gradient and optimizer step, with all replays."""
        batches = [self.batch] * self.recipe.accumulate
        once = seconds_of(lambda: self.stepper.step(batches, 1.0), self.device, times=1)
        return once * self.stepper.inner.replays / self.recipe.accumulate

    def query_seconds(self) -> float:
        """Time of a forward and an input gradient of a batch."""
        with modes(self.model, self.recipe.attack_bn):
            network = self.stepper.attacked_network()
            return seconds_of(lambda: _input_gradient(network, self.batch.x), self.device)

    def flops(self) -> Flops:
        """Arithmetic of the loss that learns, on a few images."""
        return flops_of(lambda: self._loss(_FLOPS_ROWS), self.stepper.learning_weights())

    def memory(self) -> Memory:
        """Of the loss that learns and of one query of the attack."""
        learning = mib_of(self._loss, self.network, self.recipe.batch)
        if not self.stepper.objective.uses_attack:
            return Memory(learning, 0.0)
        with modes(self.model, self.recipe.attack_bn):
            network = self.stepper.attacked_network()
            attack = mib_of(lambda rows: _scores(network, self._rows(rows)[0]), self.network, self.recipe.batch)
        return Memory(learning, attack)

    def _loss(self, rows: int) -> Tensor:
        x, y = self._rows(rows)
        return self.stepper.batch_loss(AttackedBatch(x, x, y, 1.0)).loss

    def _rows(self, rows: int) -> tuple[Tensor, Tensor]:
        ids = torch.arange(rows, device=self.device) % len(self.batch.x)
        return self.batch.x[ids], self.batch.y[ids]


def _still_stepper(model: nn.Module, data: Dataset, inner: InnerAttack, recipe: Recipe, images: Tensor) -> Stepper:
    """The training's Stepper with a learning rate of 0: its steps take their time and cannot diverge."""
    stepper = build_stepper(model, inner, recipe, images, _prior_of(model, data, recipe))
    for group in stepper.optimizer.param_groups:
        group["lr"] = 0.0
    return stepper


def _prior_of(model: nn.Module, data: Dataset, recipe: Recipe) -> Prior:
    """The recipe's prior; for EWC with a Fisher information of ones, which takes the same time."""
    network = network_in(model)
    ones = {name: torch.ones_like(weight) for name, weight in network.named_parameters()}
    fresh = chosen(list(ones), recipe.fresh)
    return prior(recipe.prior, network, len(data), fresh=fresh, fisher=ones, decay_norms=recipe.decay_norms)


def _scores(network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The sum of the logits, with a graph back to the images."""
    return network(x.detach().clone().requires_grad_(True)).sum()


def _input_gradient(network: Callable[[Tensor], Tensor], x: Tensor) -> None:
    query = x.detach().clone().requires_grad_(True)
    torch.autograd.grad(network(query).sum(), query)


@contextmanager
def _weights_restored(model: nn.Module) -> Iterator[None]:
    """The weights in storage of their own while the context lasts; then the old storage, layout included."""
    before = [(weight, weight.data) for weight in model.parameters()]
    for weight, values in before:
        weight.data = values.clone()
    try:
        yield
    finally:
        for weight, values in before:
            weight.data = values
