"""From a model's name to a classifier of pixels with weights."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch

from robustkit.data import Dataset
from robustkit.errors import UserError, unknown
from robustkit.primitives import user_code

from . import pretrained
from .described import described
from .fit import require_fit
from .pixels import PixelModel
from .target import target_of
from .training import CleanRecipe
from .ways import TIMM, Wish, from_file, own, published, trained

DEFAULT_RECIPE = CleanRecipe()


def load_model(
    name: str,
    *,
    dataset: str | Dataset | None = None,
    weights: str | Path | None = None,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    train: bool = False,
    retrain: bool = False,
    report: Callable[[str, float | None], None] | None = None,
    recipe: CleanRecipe = DEFAULT_RECIPE,
) -> PixelModel:
    """The model called `name` as a classifier of pixels in [0, 1], in eval mode on the CPU.

    Args:
        name: One of torchvision's classification models, "timm:NAME", "path/file.py:function" for one of your own, or
            a `.safetensors` file that `robustkit finetune` wrote.
        dataset: The data it is for; decides the classes, the size, and what it is trained on.
        weights: A checkpoint file, or published weights such as "default". For "imagenet" the default; for "digits"
            the model is trained once and cached.
        num_classes: Of the checkpoint, where it has more than the data.
        mean: Subtracted from each channel; else the published weights' own, or nothing.
        std: Each channel is divided by it; likewise.
        train: Train it here once if there are no weights; small images, no augmentation.
        retrain: Train again, whatever is cached.
        report: Gets `(sentence, None)` to be shown once and `(what, share done)` during a training.
        recipe: How it is trained.

    Raises:
        UserError: name, weights and data do not make a model; the sentence names the fix.
    """
    require_known(name)
    about = described(name)
    if about is None:
        wish = Wish(name, target_of(dataset), weights, num_classes, mean, std)
    elif weights is not None or train or retrain:
        raise UserError(f"{name} has weights of its own; leave out --weights, --train and --retrain.")
    else:
        wish = Wish(about.architecture, target_of(dataset), name, about.num_classes, about.mean, about.std)
    # Networks are built with random weights first: the caller's generator shall not notice, and the seed makes
    # those weights of a user's own network that no checkpoint fills the same each time.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.seed)
        way = _way(wish, train or retrain)
        if way == "train":
            model = trained(wish, recipe, retrain, report or _silent)
        else:
            model = {"own": own, "file": from_file, "published": published}[way](wish)
    model.eval()
    model.name = model.name if about is None else about.name
    if wish.target is not None:
        require_fit(model, wish.target)
    return model


def model_names() -> list[str]:
    """The models that `load_model` knows by name alone."""
    return pretrained.torchvision_names()


def require_known(name: str) -> None:
    """Refuse a name that no model has, without loading anything."""
    known = name.startswith(TIMM) or user_code.address(name) is not None or described(name) is not None
    if not known and name not in model_names():
        raise unknown("model", name, model_names())


def _way(wish: Wish, train: bool) -> Literal["own", "file", "published", "train"]:
    """Where the weights come from."""
    if wish.weights is not None and train:
        raise UserError("--weights and --train exclude each other; leave one out.")
    if user_code.address(wish.name) is not None:
        if train:
            raise UserError(f"{wish.name} is used as it is returned; leave out --train, and pass its --weights FILE.")
        return "own"
    if wish.weights is not None:
        return "file" if _is_file(wish.weights) else "published"
    if wish.target is not None and (train or wish.target.name == "digits"):
        return "train"
    if wish.target is None:
        raise UserError(
            f"{wish.name} needs weights; pass --weights FILE, --weights default for those trained on ImageNet, "
            "or --dataset digits to train it here once."
        )
    if wish.target.name == "imagenet":
        return "published"
    raise UserError(
        f"{wish.name} has no weights for {wish.target.name}; pass --weights FILE, or --train to train it here once."
    )


def _is_file(weights: str | Path) -> bool:
    path = Path(weights).expanduser()
    return isinstance(weights, Path) or path.is_file() or bool(path.suffix) or len(path.parts) > 1


def _silent(text: str, share: float | None) -> None:
    """Where nobody listens."""
