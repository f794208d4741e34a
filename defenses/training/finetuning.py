"""Adversarial fine-tuning: attack the network as it is, learn from what broke it, keep the best epoch."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from robustkit.data import Dataset, from_tensors
from robustkit.errors import UserError
from robustkit.host.progress import ProgressWatch, Silent
from robustkit.models.preprocessing import network_in

from ..inner_attack.objectives import objective
from ..inner_attack.specification import Inner, inner
from ..weights.freezing import chosen, ever_free
from ..weights.prior import prior
from .checks import checked_data, checked_network
from .parallel import processes
from .recipe import PRESETS, Recipe
from .selection import pair_of
from .training import Training
from .training import Tuned as Tuned

Data = Dataset | tuple[Tensor, Tensor]

_NOBODY = Silent()


def finetune(
    model: nn.Module,
    train: Data,
    val: Data,
    *,
    eps: float | str,
    norm: str = "Linf",
    recipe: Recipe | str = "safe",
    out: str | Path | None = None,
    test: Data | None = None,
    watch: ProgressWatch = _NOBODY,
) -> Tuned:
    """Fine-tune a classifier so that it withstands an attack; the best epoch on validation images is kept.

    Called in each process that `torchrun` started, or of a process group, all train together, each on the device of
    its model, and all have the same weights at the end (see `parallel`). The recipe's batch is what they share; the
    first process keeps and tells. `bn=frozen` makes the result independent of their number, up to rounding.

    Args:
        model: takes pixels in [0, 1], returns logits; it is changed in place and left in eval mode. Weights with
            requires_grad=False stay as they are, and so do the statistics of a BatchNorm of theirs, whatever the
            recipe freezes beside them. No weight has a gradient afterwards.
        train: a `Dataset`, or images `[N, C, H, W]` in [0, 1] with labels `[N]`.
        val: likewise; chooses the epoch (by 2000 of them at most), so report on other images.
        eps: radius, in units of pixels in [0, 1]; "8/255" is exact.
        norm: "Linf", "L2" or "L1".
        recipe: all choices, or the name of a preset: "fast", "safe", "strong".
        out: folder in which the training is kept; the same call goes on where it stopped.
        test: images that the results will be reported on, to make sure that none of them is learnt from.
        watch: is told of the progress.

    Raises:
        UserError: something cannot be done as asked; the sentence names the fix.
        Diverged: a UserError, too: a loss, a gradient or a weight is no longer a number.
    """
    if isinstance(recipe, str):
        if recipe not in PRESETS:
            raise UserError(f"There is no preset {recipe!r}; take one of {', '.join(PRESETS)}.")
        recipe = PRESETS[recipe]
    with processes(_device_of(model)) as team, team.one_fate():
        data, held_out = as_dataset(train, "train"), as_dataset(val, "val")
        attack = inner_of(recipe, norm, eps)
        team.from_first(lambda: checked_data(data, held_out, None if test is None else as_dataset(test, "test")))
        return Training(model, data, held_out, attack, recipe, None if out is None else Path(out), watch, team).run()


def _device_of(model: nn.Module) -> torch.device:
    weights = next(model.parameters(), None)
    return torch.device("cpu") if weights is None else weights.device


def inner_of(recipe: Recipe, norm: str, eps: float | str) -> Inner:
    """The inner attack of a recipe.

    Raises:
        UserError: there is none, or it does not go with the recipe's other choices.
    """
    found, goal = inner(recipe.attack, norm, eps), objective(recipe.objective)
    if recipe.bn == "split" and not goal.learns_clean:
        raise UserError(
            f"bn=split keeps a branch for clean images, and objective={recipe.objective} learns from none beside the "
            "adversarial ones; take trades:6 or mart:5, or another bn."
        )
    if found.replays > 1 and (recipe.objective.strip().lower() != "at" or recipe.awp):
        raise UserError(
            f"{recipe.attack} takes both gradients in one pass, which goes with objective=at and no awp alone."
        )
    return found


def checked_recipe(
    model: nn.Module, train: Dataset, val: Dataset, recipe: Recipe, *, eps: float | str, norm: str
) -> None:
    """Refuse what can be known to fail before any training.

    Raises:
        UserError: a choice cannot be met by the model or by another choice.
    """
    network = network_in(model)
    inner_of(recipe, norm, eps)
    checked_network(model, train, val, recipe)
    ever_free(network, recipe.freeze, recipe.epochs)
    prior(recipe.prior, network, len(train), names=())
    chosen([name for name, _ in network.named_parameters()], recipe.fresh)
    pair_of(recipe.select, norm, eps)


def as_dataset(data: Data, split: str) -> Dataset:
    """Tensors as a data set; a data set as it is."""
    return replace(from_tensors(*data), split=split) if isinstance(data, tuple) else data
