"""Adversarial fine-tuning: attack the current network, learn from the adversarial images, keep the best epoch."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from robustkit.classifier.classifier import Classifier
from robustkit.data import Dataset, TensorData, given_dataset
from robustkit.data.given import GivenData
from robustkit.data.torch_dataset import TorchData
from robustkit.errors import UserError
from robustkit.host.arguments import checked_arguments_but
from robustkit.host.lock import locked
from robustkit.host.progress import ProgressWatch, Silent, shown_progress
from robustkit.models.preprocessing import network_in
from robustkit.paths import user_path

from ..inner_attack.objectives import build_objective
from ..inner_attack.specification import InnerAttack, inner_attack
from ..weights.freezing import chosen, ever_free
from ..weights.prior import prior
from .checks import check_several_classes, checked_data, checked_network, trained_module
from .processes import processes
from .recipe import PRESETS, Recipe
from .selection import judging_attacks
from .training import Training
from .training import Tuned as Tuned

_SILENT = Silent()


@checked_arguments_but("train", "val", "test")
def finetune(
    model: nn.Module | Classifier,
    train: GivenData,
    val: GivenData,
    *,
    eps: float | str,
    norm: str = "Linf",
    recipe: Recipe | str = "safe",
    out: str | Path | None = None,
    test: GivenData | None = None,
    watch: ProgressWatch = _SILENT,
    progress: bool | None = None,
) -> Tuned:
    """Fine-tune a classifier against an attack; the best epoch on validation images is kept.

    If it is called in every process of `torchrun` or of a process group, all train together, each on the device of its
    model, and all have the same weights at the end (see `team`). They share each batch of the recipe; the first process
    writes and reports. With `bn=frozen` the result does not depend on their number, up to rounding.

    Args:
        model: takes pixels in [0, 1], returns logits; it is changed in place and left in eval mode. Weights with
            requires_grad=False stay frozen, with the statistics of their BatchNorm, in addition to those that the
            recipe freezes. No weight has a gradient afterwards. Of a `Classifier` the model with `mean` and `std`.
        train: images of several classes: a `Dataset`, `[N, C, H, W]` in [0, 1] with labels `[N]`, a torch data set
            without random transforms, or the `DataLoader` of one, of which the images are taken, not the batches.
        val: the same; at most 2000 of them choose the epoch, so report results on other images.
        eps: radius, in units of pixels in [0, 1]; "8/255" is exact.
        norm: "Linf", "L2" or "L1".
        recipe: all choices, or the name of a preset: "fast", "safe", "strong".
        out: folder of the checkpoint; the same call resumes where it stopped.
        test: images that results will be reported on; refused if one of them is also a training or validation image.
        watch: receives the progress.
        progress: without a `watch`, show a bar on standard error; None shows it in a terminal only.

    Raises:
        UserError: an argument or a choice cannot be used; the sentence names the fix.
        Diverged: also a UserError; a loss, a gradient or a weight is NaN or infinite.
    """
    if isinstance(recipe, str):
        if recipe not in PRESETS:
            raise UserError(f"There is no preset {recipe!r}; take one of {', '.join(PRESETS)}.")
        recipe = PRESETS[recipe]
    model = trained_module(model)
    with processes(_device_of(model)) as team, team.fail_together():
        data, held_out = as_dataset(train, "train"), as_dataset(val, "val")
        inner = inner_attack_of(recipe, norm, eps)
        team.from_first(lambda: checked_data(data, held_out, None if test is None else as_dataset(test, "test")))
        folder = None if out is None else user_path(out)
        lock = nullcontext() if folder is None or not team.first else locked(folder)
        own = shown_progress(progress if team.first else False) if watch is _SILENT else nullcontext(watch)
        with lock, own as shown:
            return Training(model, data, held_out, inner, recipe, folder, shown, team).run()


def _device_of(model: nn.Module) -> torch.device:
    weights = next(model.parameters(), None)
    return torch.device("cpu") if weights is None else weights.device


def inner_attack_of(recipe: Recipe, norm: str, eps: float | str) -> InnerAttack:
    """The inner attack of a recipe.

    Raises:
        UserError: there is no such attack, or it cannot be combined with the recipe's other choices.
    """
    inner, objective = inner_attack(recipe.attack, norm, eps), build_objective(recipe.objective)
    if recipe.bn == "split" and not objective.has_clean_term:
        raise UserError(
            f"bn=split needs an objective with a term for clean images beside the adversarial one, and "
            f"objective={recipe.objective} has none; take trades:6 or mart:5, or another bn."
        )
    if inner.replays > 1 and (recipe.objective.strip().lower() != "at" or recipe.awp):
        raise UserError(f"{recipe.attack} takes both gradients in one pass, which needs objective=at and no awp.")
    return inner


def checked_recipe(
    model: nn.Module, train: Dataset, val: Dataset, recipe: Recipe, *, eps: float | str, norm: str
) -> None:
    """Refuse a recipe that is sure to fail, before any training.

    Raises:
        UserError: a choice does not fit the model or another choice.
    """
    network = network_in(model)
    inner_attack_of(recipe, norm, eps)
    check_several_classes(train, val)
    checked_network(model, train, val, recipe)
    ever_free(network, recipe.freeze, recipe.epochs)
    prior(recipe.prior, network, len(train), names=())
    chosen([name for name, _ in network.named_parameters()], recipe.fresh)
    judging_attacks(recipe.select, norm, eps)


def as_dataset(data: GivenData, split: str) -> Dataset:
    """The data as a `Dataset`."""
    given = given_dataset(data, f"{split} takes")
    return replace(given, split=split) if given is not data and isinstance(given, TensorData | TorchData) else given
