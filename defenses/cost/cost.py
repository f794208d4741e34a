"""Predict the cost of a fine-tuning: passes of a step, what freezing saves of them, memory, time, priors.

A frozen prefix with a share `phi` of the forward pass's arithmetic saves at most `2 phi` forwards of a step, because
the attack still needs gradients through the prefix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from robustkit.data import Dataset
from robustkit.models.preprocessing import network_in

from ..inner_attack.specification import inner_attack
from ..training.recipe import Recipe
from ..weights.freezing import chosen
from ..weights.prior import prior, std_of
from .measured import Flops, Memory, learning_all
from .passes import StepPasses, crafting_passes, judging_passes, learning_passes
from .real_step import real_step


class PriorGroup(NamedTuple):
    """Weights that have the same prior; `decay = 1 / (N sigma^2)`."""

    weights: int
    decay: float
    sigma: float
    centre: str  # "zero" or "start"


@dataclass(frozen=True)
class TrainingCost:
    """The cost of a recipe on a network."""

    recipe: Recipe
    images: int  # N
    attack: StepPasses  # that craft one batch
    learning_step: StepPasses  # that learn from it
    flops: Flops  # of the step that learns, with the recipe's freezing
    flops_unfrozen: Flops
    weights: int
    learning: int  # weights that learn
    prior: tuple[PriorGroup, ...]
    memory: Memory
    step_seconds: float  # of one batch: attack, gradient and optimizer step
    query_seconds: float  # of a forward and an input gradient of a batch
    validation: float = 0.0  # passes of a batch that judging one epoch takes at most
    warnings: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Batches per epoch; a last one of a single image is left out."""
        return max(1, self.images // self.recipe.batch + (self.images % self.recipe.batch > 1))

    @property
    def prefix(self) -> float:
        """Share of a forward pass's arithmetic that no gradient of the learning step passes through."""
        return self.flops.frozen / self.flops.forward if self.flops.forward else 0.0

    @property
    def saved_units(self) -> float:
        """What freezing saves of the learning step's backward, in forwards."""
        if not self.flops_unfrozen.backward:
            return 0.0
        backward = self.learning_step.inputs + self.learning_step.weights
        return backward * (1 - self.flops.backward / self.flops_unfrozen.backward)

    @property
    def units(self) -> float:
        """One training step, in forwards."""
        return self.attack.units + self.learning_step.units - self.saved_units

    @property
    def saved(self) -> float:
        """Share of a whole training step that freezing saves."""
        return self.saved_units / (self.units + self.saved_units)

    @property
    def learning_share(self) -> float:
        """Share of the weights that learn."""
        return self.learning / self.weights

    @property
    def seconds_per_epoch(self) -> float:
        """Without validation."""
        return self.step_seconds * self.images / self.recipe.batch

    @property
    def validation_seconds(self) -> float:
        """Of judging one epoch, at most: images that are broken need no further queries."""
        # A query is two passes.
        return self.validation / 2 * self.query_seconds

    @property
    def seconds(self) -> float:
        """Of the whole training, at most; the start is judged too."""
        epochs = self.recipe.epochs
        return epochs * self.seconds_per_epoch + (epochs + 1) * self.validation_seconds

    def lines(self) -> list[str]:
        """The cost as a plain-text table, with warnings last."""
        recipe = self.recipe
        rows = [
            (f"attack {recipe.attack}", str(self.attack), f"{self.attack.units:.1f}"),
            (f"learning, {recipe.objective}", str(self.learning_step), f"{self.learning_step.units:.1f}"),
        ]
        if self.learning < self.weights:
            what = f"freeze={recipe.freeze}"
            rows.append((what, f"{100 * self.prefix:.0f} % of a forward is before the first layer that learns",
                         f"{-self.saved_units:.1f}"))  # fmt: skip
        wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
        table = [f"  {first:<{wide[0]}}  {second:<{wide[1]}}  {third:>6}" for first, second, third in rows]
        return [
            f"One step of {recipe.batch} images, in units of a forward pass:",
            *table,
            f"  {'total':<{wide[0]}}  {'':<{wide[1]}}  {self.units:>6.1f}",
            f"Weights that learn: {self.learning:,} of {self.weights:,} ({100 * self.learning_share:.3g} %)",
            *(self._prior_lines()),
            f"Memory for backward passes: {self.memory.outer:.1f} MiB while learning, "
            f"{self.memory.attack:.1f} MiB while attacking",
            self._time_line(),
            *(f"Warning: {warning}" for warning in self.warnings),
        ]

    def _time_line(self) -> str:
        epoch, epochs = f"{_time(self.seconds_per_epoch)} an epoch of {self.steps} steps", self.recipe.epochs
        if not self.validation:
            return f"Time: {epoch}, {_time(self.seconds)} for {epochs} epochs, without validation"
        judging = f"at most {_time(self.validation_seconds)} to judge it"
        return f"Time: {epoch} and {judging}; at most {_time(self.seconds)} for {epochs} epochs"

    def _prior_lines(self) -> Iterator[str]:
        for group in self.prior:
            around = "their current values" if group.centre == "start" else "zero"
            yield (
                f"Prior: {group.weights:,} weights around {around}, lambda = {group.decay:.3g} = 1 / (N sigma^2), "
                f"sigma = {group.sigma:.3g} at N = {self.images:,}"
            )
        if not self.prior:
            yield f"Prior: {self.recipe.prior}" + (", maximum likelihood" if self.recipe.prior == "none" else "")

    def __str__(self) -> str:
        return "\n".join(self.lines())


def cost(
    model: nn.Module, data: Dataset, recipe: Recipe, *, eps: float | str, norm: str = "Linf", held_out: int = 0
) -> TrainingCost:
    """The cost of a recipe on a network, from counts and from measurements on one batch.

    Args:
        model: takes pixels in [0, 1]; it is left as it was.
        data: the training images.
        recipe: all choices.
        eps: radius of the training's attack.
        norm: of the same.
        held_out: number of validation images that judge each epoch; 0 leaves them out.

    Raises:
        UserError: the recipe or the threat cannot be used.
    """
    inner, network = inner_attack(recipe.attack, norm, eps), network_in(model)
    with real_step(model, data, inner, recipe) as step:
        with learning_all(network):
            unfrozen = step.flops()
        return TrainingCost(
            recipe=recipe, images=len(data),
            attack=crafting_passes(recipe, inner), learning_step=learning_passes(recipe, inner),
            flops=step.flops(), flops_unfrozen=unfrozen,
            weights=sum(weight.numel() for weight in network.parameters()),
            learning=sum(weight.numel() for weight in step.stepper.learning_weights()),
            prior=_prior_groups(network, recipe, len(data)), memory=step.memory(),
            query_seconds=step.query_seconds(), step_seconds=step.seconds(),
            validation=judging_passes(recipe, norm, eps) * held_out / recipe.batch,
        )  # fmt: skip


def memory(model: nn.Module, data: Dataset, recipe: Recipe, *, eps: float | str, norm: str = "Linf") -> Memory:
    """The memory that a recipe keeps for its backward passes; the model is left as it was."""
    with real_step(model, data, inner_attack(recipe.attack, norm, eps), recipe) as step:
        return step.memory()


def _prior_groups(network: nn.Module, recipe: Recipe, images: int) -> tuple[PriorGroup, ...]:
    """Weights by their prior; empty without a prior, and for EWC, whose precisions are not known before it starts."""
    if recipe.prior.partition(":")[0].strip().lower() == "ewc":
        return ()
    sizes = {name: weight.numel() for name, weight in network.named_parameters()}
    fresh = chosen(list(sizes), recipe.fresh)
    counts: dict[tuple[float, str], int] = {}
    for name, pull in prior(recipe.prior, network, images, fresh=fresh, decay_norms=recipe.decay_norms).pulls.items():
        key = float(torch.as_tensor(pull.precision, device="cpu").mean()), "zero" if pull.centre is None else "start"
        counts[key] = counts.get(key, 0) + sizes[name]
    return tuple(PriorGroup(count, decay, std_of(decay, images), centre) for (decay, centre), count in counts.items())


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
