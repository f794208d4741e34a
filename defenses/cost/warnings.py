"""Warn of choices that are likely to disappoint, before a fine-tuning is run."""

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from robustkit.data import Dataset
from robustkit.models.preprocessing import network_in

from ..inner_attack.objectives import build_objective
from ..inner_attack.specification import inner_attack
from ..training.guards import ROBUST, notes_before
from ..training.recipe import Recipe
from ..training.selection import Judge, ValidationScore
from ..weights.batchnorm import norms_of
from ..weights.freezing import frozen_names
from .cost import TrainingCost, cost

_START_IMAGES = 128  # on which the start is judged
_LITTLE = 0.1  # share of a step that freezing should save


def explained(
    model: nn.Module, train: Dataset, recipe: Recipe, *, eps: float | str, norm: str = "Linf", held_out: int = 0
) -> TrainingCost:
    """The cost of a fine-tuning, with warnings; the model is left as it was.

    Args:
        model: takes pixels in [0, 1].
        train: training images; some of them are used to judge the start.
        recipe: all choices.
        eps: radius of the training's attack.
        norm: of the same.
        held_out: number of validation images that judge each epoch; 0 leaves them out.

    Raises:
        UserError: the recipe or the threat cannot be used.
    """
    start = score_of_start(model, train, recipe, eps, norm)
    plain = cost(model, train, recipe, eps=eps, norm=norm, held_out=held_out)
    return replace(plain, warnings=tuple(warnings_of(plain, model, start, eps, norm)))


def explain(
    model: nn.Module, train: Dataset, recipe: Recipe, *, eps: float | str, norm: str = "Linf", held_out: int = 0
) -> str:
    """The cost of a fine-tuning, with warnings, as plain text; arguments as for `explained`."""
    return str(explained(model, train, recipe, eps=eps, norm=norm, held_out=held_out))


def score_of_start(model: nn.Module, data: Dataset, recipe: Recipe, eps: float | str, norm: str) -> ValidationScore:
    """Accuracy of the start on some training images, under the attacks that choose the epoch."""
    x, y = data.batch(range(min(_START_IMAGES, len(data))))
    radius = inner_attack(recipe.attack, norm, eps).attack.ball.eps
    return Judge(x, y, recipe.select, norm, radius, recipe.seed).score(model)


def warnings_of(
    plain: TrainingCost, model: nn.Module, start: ValidationScore, eps: float | str, norm: str
) -> Iterator[str]:
    """One sentence for each choice that may disappoint; first those that the training will also report.

    Args:
        plain: the cost of the recipe, without warnings.
        model: the start.
        start: its accuracies on some images.
        eps: radius of the training's attack.
        norm: of the same.
    """
    recipe, network = plain.recipe, network_in(model)
    uses_attack = build_objective(recipe.objective).uses_attack
    names = frozen_names(network, recipe.freeze)
    prefix = next(name for name, _ in network.named_parameters()) in names
    has_norms = bool(norms_of(network))
    yield from notes_before(recipe, start, prefix=prefix, has_norms=has_norms, uses_attack=uses_attack)
    if prefix and plain.saved < _LITTLE:
        yield (
            f"Freezing saves only about {100 * plain.saved:.0f} % of a step, because the attack needs gradients "
            "through the frozen layers; it does save memory while learning, and it reduces overfitting."
        )
    if recipe.eps_warmup == 0 and start.worst < ROBUST and uses_attack:
        yield "The start is not robust and eps_warmup=0; the full radius at once costs accuracy; leave eps_warmup out."
    yield from _attack_warnings(recipe, eps, norm)


def _attack_warnings(recipe: Recipe, eps: float | str, norm: str) -> Iterator[str]:
    if recipe.objective == "clean":
        yield "objective=clean uses no adversarial images; it is a control and gives no robustness."
        return
    attack, replays = inner_attack(recipe.attack, norm, eps)
    steps, length = getattr(attack, "steps", None), getattr(attack, "step_length", None)
    if steps is None or length is None:
        return
    if replays == 1 and steps * length < attack.ball.eps:
        yield (
            f"{steps} steps of {length:g} cannot cross the ball of radius {attack.ball.eps:g}; give more steps or a "
            "larger step_size."
        )
    if steps == 1:
        yield (
            "Training with a one-step attack can end in catastrophic overfitting from one epoch to the next; watch "
            "val_worst, the accuracy under a stronger attack, by which the epochs are chosen."
        )
