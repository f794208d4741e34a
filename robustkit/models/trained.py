"""A model trained here once on a data set: from the cache if it is there, else trained and put there."""

import json
from dataclasses import asdict
from pathlib import Path

from robustkit import __version__
from robustkit.data import Dataset, load_dataset, other_split, pick
from robustkit.errors import UserError

from . import cache, checkpoint
from .pixels import PixelModel
from .target import Target
from .training import CleanRecipe, Report, Subset, train

HELD_OUT = 10  # one image in so many, where there is no validation split
EDITION = 1  # to be raised when `training.py` makes something else of the same recipe: old files are then not used


def training_split(target: Target) -> Dataset:
    """The training split of the data set that a model is for.

    Raises:
        UserError: it has none, or its files are not at hand.
    """
    if target.data is None:
        return load_dataset(target.name, "train")
    try:
        return other_split(target.data, "train")
    except UserError as error:
        raise UserError(f"{str(error).rstrip('.')}, so nothing can be trained here; pass --weights FILE.") from error


def give_trained_weights(model: PixelModel, data: Dataset, recipe: CleanRecipe, retrain: bool, report: Report) -> None:
    """Give `model`, fresh, the weights of a training on `data` and the source that says so."""
    part, held_out = _parts(data)
    model.source = f"{model.name}, trained here on {data.name} ({data.split} split, {len(part.ids)} images)"
    identity = _identity(model, data, recipe)
    path = cache.place(model.name, data.name, identity)
    if not retrain and path.exists():
        if _read(model, path):
            return
        report(f"the cached model {path} is broken, so it is trained again", None)
    size = f"{len(part.ids)} images, {recipe.epochs} epochs"
    report(f"training {model.name} once on {data.name} ({size}); cached in {path}", None)
    accuracy = train(model, part, held_out, recipe, report)
    about = {
        "model": model.name,
        "dataset": data.name,
        "recipe": json.dumps(asdict(recipe)),
        "val_accuracy": f"{accuracy:.6g}",
        "robustkit": __version__,
    }
    try:
        cache.store(path, model.network.state_dict(), about)
    except OSError as error:
        report(f"the trained model could not be kept in {path.parent} ({error}); it will be trained again", None)


def _parts(data: Dataset) -> tuple[Subset, Subset]:
    """What to train on and what to check on: the validation split if there is one, else a tenth of the images."""
    order = pick(len(data))
    try:
        val = other_split(data, "val")
    except UserError:
        cut = max(1, len(order) // HELD_OUT)
        return Subset(data, order[cut:]), Subset(data, order[:cut])
    return Subset(data, order), Subset(val, range(len(val)))


def _identity(model: PixelModel, data: Dataset, recipe: CleanRecipe) -> dict[str, object]:
    return {
        "data": data.fingerprint(range(len(data))),
        "recipe": asdict(recipe),
        "edition": EDITION,
        "classes": model.num_classes,
        "pixels": [model.size, model.gray, *([model.mean.tolist(), model.std.tolist()] if model.normalises else [])],
    }


def _read(model: PixelModel, path: Path) -> bool:
    try:
        checkpoint.fit(model.network, checkpoint.read_state(path), path, model.name)
    except UserError:
        return False
    return True
