"""Count the passes of one training step, from the recipe and the attack alone.

In units of one forward pass of a batch, a gradient in the activations costs 1 and one in the weights 1. An attack of k
steps then costs 2k and the step that learns 3, `2k + 3` in total.
"""

from typing import NamedTuple

from robustkit.primitives import registry

from ..inner_attack.objectives import build_objective
from ..inner_attack.specification import InnerAttack
from ..training.recipe import Recipe


class StepPasses(NamedTuple):
    """Passes of one batch through the network."""

    forwards: int = 0
    inputs: int = 0  # gradients in the activations
    weights: int = 0  # gradients in the weights

    @property
    def units(self) -> int:
        """The sum: each pass costs about as much as one forward."""
        return self.forwards + self.inputs + self.weights

    def plus(self, other: "StepPasses") -> "StepPasses":
        """The passes of both."""
        return StepPasses(*(first + second for first, second in zip(self, other, strict=True)))

    def __str__(self) -> str:
        named = zip(self, ("forward", "input gradient", "weight gradient"), strict=True)
        return " + ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in named if count) or "nothing"


def crafting_passes(recipe: Recipe, inner: InnerAttack) -> StepPasses:
    """The passes that make the adversarial images of one batch at the full radius."""
    objective, attack = build_objective(recipe.objective), inner.attack
    # Free training gets the next images from the gradient of the step that learns.
    if not objective.uses_attack or inner.replays > 1:
        return StepPasses()
    # An attack's own cost includes a forward that judges its last point. A training judges nothing, but it compares
    # the last point with the best one if the attack keeps it, and restarts with each other.
    compared = StepPasses(attack.restarts if attack.restarts > 1 else 0)
    forwards = attack.cost.forwards - (not attack.keeps_best)
    crafting = StepPasses(attack.restarts * forwards, attack.restarts * attack.cost.backwards)
    return crafting.plus(compared).plus(StepPasses(int(objective.needs_clean_logits)))


def learning_passes(recipe: Recipe, inner: InnerAttack) -> StepPasses:
    """The passes of learning from one batch: from adversarial images, and from clean ones if they have a term."""
    kinds = 1 + build_objective(recipe.objective).has_clean_term
    once = StepPasses(kinds, kinds, kinds)
    # The adversarial weight perturbation takes the gradient of the same loss a second time.
    each = once.plus(once) if recipe.awp else once
    return StepPasses(*(inner.replays * count for count in each))


def judging_passes(recipe: Recipe, norm: str, eps: float | str) -> int:
    """The passes of one validation image that judging an epoch takes at most."""
    if not build_objective(recipe.objective).uses_attack:
        return 1
    attack = registry.build(recipe.select, norm, eps).cost
    # Two attacks, on cross-entropy and on the margin; both again for an average of the weights.
    return (1 + 2 * (attack.forwards + attack.backwards)) * (2 if recipe.ema is not None else 1)
