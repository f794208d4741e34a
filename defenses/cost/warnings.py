"""What should be known before a fine-tuning is run: choices that disappoint, each with the reason."""

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from robustkit.data import Dataset
from robustkit.models.preprocessing import network_in

from ..inner_attack.objectives import objective
from ..inner_attack.specification import inner
from ..training.guards import ROBUST, before
from ..training.recipe import Recipe
from ..training.selection import Judge, ValidationScore
from ..weights.batchnorm import norms_of
from ..weights.freezing import frozen_names
from .cost import TrainingCost, cost

_LOOKED_AT = 128  # images that stand for the start
_LITTLE = 0.1


def explained(
    model: nn.Module, train: Dataset, recipe: Recipe, *, eps: float | str, norm: str = "Linf", held_out: int = 0
) -> TrainingCost:
    """What a fine-tuning would cost, with what to beware of; the model is left as it was.

    Args:
        model: takes pixels in [0, 1].
        train: images to learn from; some of them also stand for the start's robustness.
        recipe: all choices.
        eps: radius of the training's attack.
        norm: of the same.
        held_out: validation images that each epoch is judged on; 0 leaves that out.

    Raises:
        UserError: the recipe or the threat cannot be used.
    """
    start = level_of_start(model, train, recipe, eps, norm)
    known = cost(model, train, recipe, eps=eps, norm=norm, held_out=held_out)
    return replace(known, warnings=tuple(warnings_of(known, model, start, eps, norm)))


def explain(
    model: nn.Module, train: Dataset, recipe: Recipe, *, eps: float | str, norm: str = "Linf", held_out: int = 0
) -> str:
    """The same as plain text."""
    return str(explained(model, train, recipe, eps=eps, norm=norm, held_out=held_out))


def level_of_start(model: nn.Module, data: Dataset, recipe: Recipe, eps: float | str, norm: str) -> ValidationScore:
    """What some training images say of the start, under the attacks that choose the epoch."""
    x, y = data.batch(range(min(_LOOKED_AT, len(data))))
    radius = inner(recipe.attack, norm, eps).attack.ball.eps
    return Judge(x, y, recipe.select, norm, radius, recipe.seed).level(model)


def warnings_of(
    known: TrainingCost, model: nn.Module, start: ValidationScore, eps: float | str, norm: str
) -> Iterator[str]:
    """One sentence for each choice that may disappoint, those that the training itself will say first.

    Args:
        known: the cost of the recipe.
        model: the start.
        start: its accuracies on some images.
        eps: radius of the training's attack.
        norm: of the same.
    """
    recipe, network = known.recipe, network_in(model)
    attacks = objective(recipe.objective).attacks
    names = frozen_names(network, recipe.freeze)
    prefix = next(name for name, _ in network.named_parameters()) in names
    yield from before(recipe, start, prefix=prefix, norms=bool(norms_of(network)), attacks=attacks)
    if prefix and known.saved < _LITTLE:
        yield (
            f"Freezing saves about {100 * known.saved:.0f} % of a step, for the attack still goes through what is "
            "frozen; what it saves is memory of the outer step and overfitting."
        )
    if recipe.eps_warmup == 0 and start.worst < ROBUST and attacks:
        yield "The start is not robust and eps_warmup=0; the full radius at once costs accuracy, leave eps_warmup out."
    yield from _of_attack(recipe, eps, norm)


def _of_attack(recipe: Recipe, eps: float | str, norm: str) -> Iterator[str]:
    if recipe.objective == "clean":
        yield "objective=clean learns from no adversarial image; it is a control and leads to no robustness."
        return
    built, replays = inner(recipe.attack, norm, eps)
    steps, length = getattr(built, "steps", None), getattr(built, "step_length", None)
    if steps is None or length is None:
        return
    if replays == 1 and steps * length < built.ball.eps:
        yield (
            f"{steps} steps of {length:g} cannot cross the ball of radius {built.ball.eps:g}; give more steps or a "
            "larger step_size."
        )
    if steps == 1:
        yield (
            "One-step attacks can be overfitted from one epoch to the next (catastrophic overfitting); the epochs are "
            "chosen against many steps, watch that column."
        )
