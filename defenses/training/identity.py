"""What a training's result depends on, in plain values: a checkpoint of another training is refused by it."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from robustkit.data import Dataset
from robustkit.models.fingerprint import fingerprint
from robustkit.models.preprocessing import network_in
from robustkit.primitives import registry

from ..inner_attack.specification import InnerAttack
from .recipe import Recipe
from .selection import judging_attacks


def identity_of(
    model: nn.Module, data: Dataset, held_out: Dataset, inner: InnerAttack, recipe: Recipe, processes: int
) -> dict[str, Any]:
    """Everything that the result depends on; the model as it is before the training, with its normalisation."""
    return {
        "model": fingerprint(model),
        "frozen": [name for name, weight in network_in(model).named_parameters() if not weight.requires_grad],
        "recipe": described_recipe(recipe),
        "attack": _described(inner),
        **_own_judge(recipe, inner),
        "training images": data.fingerprint(range(len(data))),
        "validation images": held_out.fingerprint(range(len(held_out))),
        "number of processes": processes,
    }


def shared_settings(
    network: nn.Module, data: Dataset, held_out: Dataset, inner: InnerAttack, recipe: Recipe
) -> dict[str, Any]:
    """What all processes of one training must have in common, cheap to compute.

    Of the images only the labels are hashed; the values of the weights are not part of it.
    """
    return {
        "model": [(name, list(weight.shape), weight.requires_grad) for name, weight in network.named_parameters()],
        "recipe": described_recipe(recipe),
        "attack": _described(inner),
        **_own_judge(recipe, inner),
        "training images": hashlib.sha256(data.labels.cpu().numpy().tobytes()).hexdigest(),
        "validation images": hashlib.sha256(held_out.labels.cpu().numpy().tobytes()).hexdigest(),
    }


def described_recipe(recipe: Recipe) -> dict[str, Any]:
    """All choices as plain values: an attack object by its name and hyper-parameters."""
    given = recipe.attack
    return asdict(recipe.but(attack=given if isinstance(given, str) else registry.spelled(given)))


def first_difference(old: Any, new: Mapping[str, Any]) -> str | None:
    """The name of the first entry in which two identities differ; None if they are equal."""
    if not isinstance(old, dict) or set(old) != set(new):
        return "format"
    for key, value in new.items():
        if old[key] != value:
            if isinstance(value, dict) and isinstance(old[key], dict):
                names = [name for name in value if old[key].get(name) != value[name]]
                return f"{key}, {names[0]}," if names else key
            return key
    return None


def _own_judge(recipe: Recipe, inner: InnerAttack) -> dict[str, Any]:
    """The attack that judges epochs if its code is the user's own; one of the package is in the recipe."""
    judge, _ = judging_attacks(recipe.select, inner.attack.ball.norm, inner.attack.ball.eps)
    described = registry.described(judge)
    return {"judging attack": described} if "code" in described else {}


def _described(inner: InnerAttack) -> dict[str, Any]:
    ball = inner.attack.ball
    return registry.described(inner.attack) | {"norm": ball.norm, "eps": ball.eps, "replays": inner.replays}
