"""What a fine-tuning costs, before it is run: passes of a step, what freezing saves of it, memory, time, priors.

In units of one forward pass of a batch, a gradient in the activations costs 1 and one in the weights 1. An attack of k
steps then costs 2k and the step that learns 3, `2k + 3` in all. A frozen prefix that does a share `phi` of the forward
pass saves at most `2 phi` of it: the attack has to go through the prefix all the same.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.classifier.isolation import untouched
from robustkit.classifier.logits import logits_of
from robustkit.data import Dataset
from robustkit.models.preprocessing import network_in
from robustkit.primitives import registry
from robustkit.primitives.protocol import Attack

from ..inner_attack.crafting import crafted, keys_of
from ..inner_attack.objectives import objective
from ..inner_attack.specification import Inner, inner
from ..training.recipe import Recipe
from ..weights.batchnorm import modes, statistics_frozen
from ..weights.folding import fold
from ..weights.freezing import chosen, frozen, frozen_names, still_layers
from ..weights.prior import prior, std_of
from .measured import Flops, flops_of, learning_all, mib_of, seconds_of

_ROWS = 4  # of the batch whose arithmetic is counted: shares do not depend on how many


class StepPasses(NamedTuple):
    """Passes of one batch through the network."""

    forwards: int = 0
    inputs: int = 0  # gradients in the activations
    weights: int = 0  # gradients in the weights

    @property
    def units(self) -> int:
        """Each costs about as much as one forward."""
        return self.forwards + self.inputs + self.weights

    def plus(self, other: "StepPasses") -> "StepPasses":
        """Both."""
        return StepPasses(*(mine + its for mine, its in zip(self, other, strict=True)))


class Pulled(NamedTuple):
    """Weights that one prior draws alike; `decay = 1 / (N sigma^2)`."""

    weights: int
    decay: float
    sigma: float
    centre: str  # "zero" or "start"


class Memory(NamedTuple):
    """MiB that are kept for a backward pass over one batch."""

    outer: float
    attack: float


@dataclass(frozen=True)
class TrainingCost:
    """What a recipe costs on a network."""

    recipe: Recipe
    images: int  # N
    attack: StepPasses  # of crafting one batch
    outer: StepPasses  # of learning from it
    flops: Flops  # of the outer step, as frozen
    flops_unfrozen: Flops
    weights: int
    learning: int
    pulled: tuple[Pulled, ...]
    memory: Memory
    crafting_seconds: float  # of one batch
    outer_seconds: float
    query_seconds: float  # a forward and an input gradient
    validation: float = 0.0  # passes of a batch that judging one epoch takes at most
    warnings: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Batches per epoch; a last one of a single image is left out."""
        return max(1, self.images // self.recipe.batch + (self.images % self.recipe.batch > 1))

    @property
    def prefix(self) -> float:
        """Share of a forward pass's arithmetic that no gradient of the outer step flows back through."""
        return self.flops.frozen / self.flops.forward if self.flops.forward else 0.0

    @property
    def saved_units(self) -> float:
        """What freezing saves of the outer step's backward, in forwards."""
        if not self.flops_unfrozen.backward:
            return 0.0
        backward = self.outer.inputs + self.outer.weights
        return backward * (1 - self.flops.backward / self.flops_unfrozen.backward)

    @property
    def units(self) -> float:
        """One training step, in forwards."""
        return self.attack.units + self.outer.units - self.saved_units

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
        return (self.crafting_seconds + self.outer_seconds) * self.images / self.recipe.batch

    @property
    def validation_seconds(self) -> float:
        """Judging one epoch, at most: images that are broken leave early."""
        # A query is two passes.
        return self.validation / 2 * self.query_seconds

    @property
    def seconds(self) -> float:
        """The whole training at most; the start is judged too."""
        epochs = self.recipe.epochs
        return epochs * self.seconds_per_epoch + (epochs + 1) * self.validation_seconds

    def lines(self) -> list[str]:
        """The cost as a table in plain text, warnings last."""
        recipe = self.recipe
        rows = [
            (f"attack {recipe.attack}", _spelled(self.attack), f"{self.attack.units:.1f}"),
            (f"learning, {recipe.objective}", _spelled(self.outer), f"{self.outer.units:.1f}"),
        ]
        if self.learning < self.weights:
            what = f"freeze={recipe.freeze}"
            rows.append((what, f"{100 * self.prefix:.0f} % of a forward lies before what learns",
                         f"{-self.saved_units:.1f}"))  # fmt: skip
        wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
        table = [f"  {first:<{wide[0]}}  {second:<{wide[1]}}  {third:>6}" for first, second, third in rows]
        return [
            f"One step of {recipe.batch} images, in units of a forward pass:",
            *table,
            f"  {'in all':<{wide[0]}}  {'':<{wide[1]}}  {self.units:>6.1f}",
            f"Weights that learn: {self.learning:,} of {self.weights:,} ({100 * self.learning_share:.3g} %)",
            *(self._prior_lines()),
            f"Kept for backward passes: {self.memory.outer:.1f} MiB while learning, "
            f"{self.memory.attack:.1f} MiB while attacking",
            self._time_line(),
            *(f"Warning: {warning}" for warning in self.warnings),
        ]

    def _time_line(self) -> str:
        epoch, epochs = f"{_time(self.seconds_per_epoch)} an epoch of {self.steps} steps", self.recipe.epochs
        if not self.validation:
            return f"Time: {epoch}, {_time(self.seconds)} for {epochs} epochs, validation apart"
        judging = f"at most {_time(self.validation_seconds)} to judge it"
        return f"Time: {epoch} and {judging}; at most {_time(self.seconds)} for {epochs} epochs"

    def _prior_lines(self) -> Iterator[str]:
        for pull in self.pulled:
            around = "the weights as they are" if pull.centre == "start" else "zero"
            yield (
                f"Prior: {pull.weights:,} weights around {around}, lambda = {pull.decay:.3g} = 1 / (N sigma^2), "
                f"sigma = {pull.sigma:.3g} at N = {self.images:,}"
            )
        if not self.pulled:
            yield f"Prior: {self.recipe.prior}" + (", maximum likelihood" if self.recipe.prior == "none" else "")

    def __str__(self) -> str:
        return "\n".join(self.lines())


def cost(
    model: nn.Module, data: Dataset, recipe: Recipe, *, eps: float | str, norm: str = "Linf", held_out: int = 0
) -> TrainingCost:
    """What a recipe costs on a network: counted, and measured on one batch.

    Args:
        model: takes pixels in [0, 1]; it is left as it was.
        data: the training images.
        recipe: all choices.
        eps: radius of the training's attack.
        norm: of the same.
        held_out: validation images that each epoch is judged on; 0 leaves that out.

    Raises:
        UserError: the recipe or the threat cannot be used.
    """
    made = inner(recipe.attack, norm, eps)
    network = network_in(model)
    with _as_trained(model, recipe):
        step = _Step(model, data, recipe)
        with learning_all(network):
            unfrozen = step.flops()
        return TrainingCost(
            recipe=recipe, images=len(data),
            attack=crafting_passes(recipe, made), outer=learning_passes(recipe, made),
            flops=step.flops(), flops_unfrozen=unfrozen,
            weights=sum(weight.numel() for weight in network.parameters()),
            learning=sum(weight.numel() for weight in network.parameters() if weight.requires_grad),
            pulled=_pulled(network, recipe, len(data)), memory=step.memory(),
            query_seconds=seconds_of(step.query, step.device), crafting_seconds=step.crafting_seconds(made),
            outer_seconds=seconds_of(step.learn, step.device) * learning_passes(recipe, made).weights / step.kinds,
            validation=judging_passes(recipe, norm, eps) * held_out / recipe.batch,
        )  # fmt: skip


def memory(model: nn.Module, data: Dataset, recipe: Recipe) -> Memory:
    """What a recipe keeps for its backward passes; the model is left as it was."""
    with _as_trained(model, recipe):
        return _Step(model, data, recipe).memory()


def crafting_passes(recipe: Recipe, made: Inner) -> StepPasses:
    """What making the adversarial images of one batch takes at the full radius."""
    goal, attack = objective(recipe.objective), made.attack
    # Replays make the next images from the gradient that the weights are learnt with.
    if not goal.attacks or made.replays > 1:
        return StepPasses()
    # An attack's own cost has one forward more, which judges its last point; a training judges nothing, but compares
    # that point with the best one, if the attack keeps it, and the restarts with each other.
    compared = StepPasses(attack.restarts if attack.restarts > 1 else 0)
    forwards = attack.cost.forwards - (not attack.keeps_best)
    asked = StepPasses(attack.restarts * forwards, attack.restarts * attack.cost.backwards)
    return asked.plus(compared).plus(StepPasses(int(goal.asks_clean)))


def learning_passes(recipe: Recipe, made: Inner) -> StepPasses:
    """What learning from one batch takes: of clean and adversarial images, or of one kind alone."""
    kinds = 1 + objective(recipe.objective).learns_clean
    once = StepPasses(kinds, kinds, kinds)
    # A perturbation of the weights is the gradient of the same loss, taken once more.
    each = once.plus(once) if recipe.awp else once
    return StepPasses(*(made.replays * count for count in each))


def judging_passes(recipe: Recipe, norm: str, eps: float | str) -> int:
    """Passes of one validation image that judging an epoch takes at most."""
    if not objective(recipe.objective).attacks:
        return 1
    once = registry.build(recipe.select, norm, eps).cost
    # On cross-entropy and on the margin; of an average of the weights all over again.
    return (1 + 2 * (once.forwards + once.backwards)) * (2 if recipe.ema is not None else 1)


@contextmanager
def _as_trained(model: nn.Module, recipe: Recipe) -> Iterator[None]:
    """The model as its training will have it; everything is put back."""
    network = network_in(model)
    # Of gradual unfreezing the last phase, which costs most.
    names = frozen_names(network, recipe.freeze, recipe.epochs - 1)
    with ExitStack() as stack:
        stack.enter_context(untouched(model))
        stack.enter_context(frozen(network, names))
        stack.enter_context(statistics_frozen(still_layers(network, names, recipe.bn)))
        model.train()
        yield


class _Step:
    """The two halves of a training step on images of the data."""

    def __init__(self, model: nn.Module, data: Dataset, recipe: Recipe) -> None:
        self.model, self.recipe = model, recipe
        self.network = network_in(model)
        self.goal = objective(recipe.objective)
        self.device = next(model.parameters()).device
        # Few images are repeated: what they show does not matter here.
        ids = [number % len(data) for number in range(recipe.batch)]
        self.x, self.y = (part.to(self.device) for part in data.batch(ids))
        self.view = fold(model, self.x[:2]) if recipe.attack_bn == "eval" else None

    @property
    def kinds(self) -> int:
        """Of images that are learnt from: attacked ones, and clean ones beside them."""
        return 1 + self.goal.learns_clean

    @property
    def learning(self) -> list[nn.Parameter]:
        """Weights that learn, as things are."""
        return [weight for weight in self.network.parameters() if weight.requires_grad]

    def learn(self) -> None:
        """Loss and gradient of a whole batch."""
        with torch.enable_grad():
            torch.autograd.grad(self._outer(self.recipe.batch), self.learning, allow_unused=True)

    def query(self) -> None:
        """One step of the attack on a whole batch."""
        with torch.enable_grad(), modes(self.model, self.recipe.attack_bn):
            query = self.x.detach().clone().requires_grad_(True)
            torch.autograd.grad(self._answers(query).sum(), query)

    def crafting_seconds(self, made: Inner) -> float:
        """Making the adversarial images of a whole batch, the attack's own arithmetic included."""
        if not self.goal.attacks or made.replays > 1:
            return 0.0
        with modes(self.model, self.recipe.attack_bn):
            # A query has warmed up what there is to warm up, and an attack is long enough to be timed once.
            return seconds_of(lambda: self._craft(made.attack), self.device, times=1, warm=False)

    def _craft(self, attack: Attack) -> None:
        climb = None
        if self.goal.asks_clean:
            with torch.no_grad():
                climb = self.goal.climb(self._logits(self.x))
        keys = keys_of(self.recipe.seed, 0, torch.arange(len(self.x), device=self.device))
        crafted(self._answers, attack, self.x, self.y, keys, climb)

    def flops(self) -> Flops:
        """Arithmetic of the outer step on a few images."""
        return flops_of(lambda: self._outer(_ROWS), self.learning)

    def memory(self) -> Memory:
        """Of both halves."""
        outer = mib_of(self._outer, self.network, self.recipe.batch)
        if not self.goal.attacks:
            return Memory(outer, 0.0)
        with modes(self.model, self.recipe.attack_bn):
            return Memory(outer, mib_of(self._asked, self.network, self.recipe.batch))

    def _outer(self, rows: int) -> Tensor:
        x, y = self._rows(rows)
        return self.goal.loss(self._logits, x, x, y, self.recipe.label_smoothing)

    def _asked(self, rows: int) -> Tensor:
        return self._answers(self._rows(rows)[0].requires_grad_(True)).sum()

    def _rows(self, rows: int) -> tuple[Tensor, Tensor]:
        ids = torch.arange(rows, device=self.device) % len(self.x)
        return self.x[ids], self.y[ids]

    def _logits(self, x: Tensor) -> Tensor:
        return self._of(self.model, x)

    def _answers(self, x: Tensor) -> Tensor:
        """To the attack, which asks a folded network where there is one."""
        return self._of(self.model if self.view is None else self.view, x)

    def _of(self, network: Callable[[Tensor], object], x: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.bf16):
            return logits_of(network(x)).float()


def _pulled(network: nn.Module, recipe: Recipe, images: int) -> tuple[Pulled, ...]:
    """Weights by how they are drawn; empty where nothing draws, or where only the Fisher information will tell."""
    if recipe.prior.partition(":")[0].strip().lower() == "ewc":
        return ()
    sizes = {name: weight.numel() for name, weight in network.named_parameters()}
    fresh = chosen(list(sizes), recipe.fresh)
    found: dict[tuple[float, str], int] = {}
    drawn = prior(recipe.prior, network, images, fresh=fresh, decay_norms=recipe.decay_norms)
    for name, pull in drawn.pulls.items():
        key = float(torch.as_tensor(pull.precision).mean()), "zero" if pull.centre is None else "start"
        found[key] = found.get(key, 0) + sizes[name]
    return tuple(Pulled(count, decay, std_of(decay, images), centre) for (decay, centre), count in found.items())


def _spelled(passes: StepPasses) -> str:
    named = zip(passes, ("forward", "input gradient", "weight gradient"), strict=True)
    return " + ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in named if count) or "nothing"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
