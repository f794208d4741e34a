"""A model that is trained here once on a data set: read from the cache if it is there, else trained and stored."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from robustkit.data import Dataset, DatasetPart, load_dataset, other_split, pick
from robustkit.errors import NoSplitError, UntrainedError, UserError
from robustkit.version import __version__

from . import cache, checkpoint
from .clean_training import CleanRecipe, Report, Trained, train
from .image_spec import ImageSpec
from .pixels import PixelModel

HELD_OUT = 10  # without a validation split, one training image in ten is held out
EDITION = 1  # raise it when `clean_training.py` gets other weights from the same recipe: older files are then not read


class TrainingData(NamedTuple):
    """Images to train on, and images on which the accuracy is checked."""

    train: Dataset
    held_out: Dataset


def training_split(images: ImageSpec) -> Dataset:
    """The training split of the data set that a model is for.

    Raises:
        UserError: it has none, or its files are missing.
    """
    if images.data is None:
        return load_dataset(images.name, "train")
    try:
        return other_split(images.data, "train")
    except NoSplitError as error:
        raise UserError(f"{str(error).rstrip('.')}, so nothing can be trained here; pass --weights FILE.") from error


def load_or_train(
    model: PixelModel, data: Dataset, recipe: CleanRecipe, retrain: bool, report: Report, *, may_train: bool = True
) -> None:
    """Give `model`, which has random weights, those of a training on `data`; sets its `source`.

    Raises:
        UntrainedError: it must be trained for that, and may not.
    """
    images = _training_data(data)
    count = len(images.train)
    model.source = f"{model.name}, trained here on {data.name} ({data.split} split, {count} images)"
    path = cache.path_of(model.name, data.name, _identity(model, data, recipe))
    cached = not retrain and cache.has(path)
    if cached and _read(model, path):
        return
    if not may_train:
        raise UntrainedError(f"{model.name} must first be trained on {data.name}; run the command, which trains it.")
    if cached:
        report(f"the cached model {path} is broken, so it is trained again", None)
    size = f"{count} images, {recipe.epochs} epochs"
    report(f"training {model.name} once on {data.name} ({size}); cached in {path}", None)
    trained = train(model, images.train, images.held_out, recipe, report)
    _store(model, path, data, trained, report)


def _training_data(data: Dataset) -> TrainingData:
    """All images and the validation split; without one, a tenth of the images is held out.

    Raises:
        UserError: the validation split cannot be read.
    """
    order = tuple(pick(len(data)))
    try:
        return TrainingData(DatasetPart(data, order), other_split(data, "val"))
    except NoSplitError:
        cut = max(1, len(order) // HELD_OUT)
        return TrainingData(DatasetPart(data, order[cut:]), DatasetPart(data, order[:cut]))


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
        checkpoint.load_weights(model.network, checkpoint.read_state(path), path, model.name)
    except UserError:
        return False
    return True


def _store(model: PixelModel, path: Path, data: Dataset, trained: Trained, report: Report) -> None:
    metadata = {
        "model": model.name,
        "dataset": data.name,
        "recipe": json.dumps(asdict(trained.recipe)),
        "val_accuracy": f"{trained.accuracy:.6g}",
        "robustkit": __version__,
    }
    try:
        cache.store(path, model.network.state_dict(), metadata)
    except (OSError, UserError) as error:
        report(f"the trained model could not be kept in {path.parent} ({error}); it will be trained again", None)
