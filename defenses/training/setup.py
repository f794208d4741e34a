"""Set a training up from its recipe: the network's layers and layout, what is frozen, and the Stepper.

A training and the cost model both use these functions, so that the cost is measured on the real step.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from robustkit.models.preprocessing import network_in

from ..inner_attack.objectives import build_objective
from ..inner_attack.specification import InnerAttack
from ..weights.average import Average
from ..weights.batchnorm import statistics_frozen
from ..weights.folding import fold
from ..weights.freezing import ever_free, frozen, frozen_names, layers_with_frozen_statistics
from ..weights.prior import Prior
from ..weights.split import split
from .recipe import Recipe
from .stepping import Stepper
from .team import ALONE, Team


@contextmanager
def prepared_network(model: nn.Module, recipe: Recipe) -> Iterator[None]:
    """The model with the layers and the memory layout of its training while the context lasts."""
    with ExitStack() as stack:
        if recipe.bn == "split":
            stack.enter_context(split(network_in(model)))
        if recipe.channels_last:
            model.to(memory_format=torch.channels_last)
            stack.callback(model.to, memory_format=torch.contiguous_format)
        yield


@contextmanager
def frozen_in(network: nn.Module, recipe: Recipe, epoch: int) -> Iterator[None]:
    """The weights and BatchNorm statistics that an epoch freezes, frozen while the context lasts."""
    names = frozen_names(network, recipe.freeze, epoch)
    with frozen(network, names), statistics_frozen(layers_with_frozen_statistics(network, names, recipe.bn)):
        yield


def build_stepper(
    model: nn.Module, inner: InnerAttack, recipe: Recipe, images: Tensor, prior: Prior, team: Team = ALONE
) -> Stepper:
    """The Stepper of a training, inside `prepared_network`.

    Args:
        model: takes pixels in [0, 1].
        inner: the attack, at full radius.
        recipe: the other choices.
        images: a few, to compare the folded view with the model.
        prior: of the weights.
        team: the processes that train together.
    """
    network, objective = network_in(model), build_objective(recipe.objective)
    weights = list(ever_free(network, recipe.freeze, recipe.epochs).values())
    view = fold(model, images) if objective.uses_attack else None
    average = new_average(network, recipe)
    return Stepper(model, inner, objective, recipe, prior, build_optimizer(weights, recipe), average, view, team)


def build_optimizer(weights: list[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """The optimizer of a recipe, without weight decay: the prior alone pulls on the weights."""
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(weights, recipe.lr, weight_decay=0.0)
    return torch.optim.SGD(weights, recipe.lr, recipe.momentum, nesterov=recipe.nesterov)


def new_average(network: nn.Module, recipe: Recipe) -> Average | None:
    """The weight average that a recipe asks for, started at the current weights."""
    return None if recipe.ema is None else Average(network, recipe.ema)
