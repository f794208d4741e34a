"""Load a model by its name, with its weights, as a classifier of pixels."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import torch

from robustkit import limits
from robustkit.black_box import RemoteAccess
from robustkit.data import Dataset
from robustkit.errors import UserError, unknown
from robustkit.host.alone import alone
from robustkit.host.arguments import checked_arguments
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path
from robustkit.primitives import user_code

from . import pretrained
from .checkpoint import is_checkpoint
from .clean_training import CleanRecipe
from .compatibility import require_compatible
from .image_spec import image_spec_of
from .model_file import description_of_weights, read_description, require_name
from .own_loaders import own_loader
from .own_weights import own_weights, require_own_weights, shown_name
from .pixels import PixelModel
from .preprocessing import normalisation_of
from .sources import (
    TIMM,
    ModelRequest,
    checkpoint_model,
    published_model,
    random_model,
    trained_model,
    user_model,
)

_CHECKPOINTS = (".pt", ".pth", ".bin", ".ckpt", ".tar")
_FILES = (*_CHECKPOINTS, ".pt2", ".onnx", ".safetensors", ".py")
DEFAULT_RECIPE = CleanRecipe()
DEFAULT_ACCESS = RemoteAccess()


@checked_arguments
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
    random_init: bool = False,
    report: Callable[[str, float | None], None] | None = None,
    recipe: CleanRecipe = DEFAULT_RECIPE,
    may_train: bool = True,
    remote: RemoteAccess = DEFAULT_ACCESS,
) -> PixelModel:
    """The model called `name` as a classifier of pixels in [0, 1], in eval mode on the CPU.

    Args:
        name: One of torchvision's classification models, "timm:NAME", "hf:ID" or "hf:FOLDER" for one of Hugging Face,
            "path/file.py:function" for one of your own, a `.safetensors` file that `robustkit finetune` wrote, a file
            of `torch.jit.save` or `torch.export.save`, an `.onnx` file, or the http:// address of a server; the last
            two give no gradients.
        dataset: The data it is for; decides the classes, the size, and what it is trained on.
        weights: A checkpoint file, or published weights such as "default". For "imagenet" the default; for "digits"
            the model is trained once and cached.
        num_classes: Of the checkpoint, if it has more than the data.
        mean: Subtracted from each channel before the network. `mean` and `std` go together; without them pixels are
            normalised as for the published weights, or not at all.
        std: Each channel is divided by it.
        train: Train it here once if there are no weights; small images, no augmentation.
        retrain: Train again even if the model is cached.
        random_init: Leave the weights of an architecture of torchvision or timm random, equal each time.
        report: Called with `(message, None)` for messages and `(text, share done)` during a training.
        recipe: How it is trained.
        may_train: Whether it is trained where it must be; else a model of the cache is read, or there is an error.
        remote: How a server is queried.

    Raises:
        UntrainedError: the model must be trained first, and `may_train` is false.
        UserError: name, weights and data do not make a model; the message names the fix.
    """
    require_known(name)
    if num_classes is not None:
        limits.require_at_most("num_classes", num_classes, limits.CLASSES)
    description = None if own_loader(name) else read_description(name)
    if description is None:
        # The normalisation belongs to the weights, whoever names the network.
        of_weights = description_of_weights(weights)
        normalisation = normalisation_of(mean, std)
        if of_weights is not None and normalisation is None:
            normalisation = normalisation_of(of_weights.mean, of_weights.std)
        described = of_weights is not None
        request = ModelRequest(name, image_spec_of(dataset), weights, num_classes, normalisation, remote, described)
    elif weights is not None or train or retrain or random_init:
        raise own_weights(name)
    else:
        architecture, _, classes, mean, std = description
        normalisation = normalisation_of(mean, std)
        request = ModelRequest(architecture, image_spec_of(dataset), name, classes, normalisation, described=True)
    # Networks are built with random weights first. Restore the caller's random state afterwards; the seed makes weights
    # of a user's network that no checkpoint fills equal each time.
    with alone(), torch.random.fork_rng(devices=[]), _on_the_cpu(), _no_coarser_than_fp32():
        torch.default_generator.manual_seed(recipe.seed)
        if random_init:
            _check_random(request, train or retrain)
            model = random_model(request)
        else:
            model = _loaded(request, train, retrain, recipe, report or _silent, may_train=may_train)
    model.eval()
    model.name = model.name if description is None else description.name
    if request.images is not None:
        require_compatible(model, request.images)
    return model


def _on_the_cpu() -> AbstractContextManager[object]:
    """Where torch builds what names no device, also with another default device."""
    try:
        default: torch.device = torch.get_default_device()
    except AttributeError:  # of torch 2.6 after set_default_device(None)
        return nullcontext()
    return nullcontext() if default.type == "cpu" else torch.device("cpu")


@contextmanager
def _no_coarser_than_fp32() -> Iterator[None]:
    """Weights of files are not rounded to the half precision that a caller has made the default."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.promote_types(default, torch.float32))
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def model_names() -> list[str]:
    """The models that `load_model` knows by name alone."""
    return pretrained.torchvision_names()


def require_known(name: str) -> None:
    """Check that there is a model of that name, without loading it.

    Raises:
        UserError: there is none.
    """
    loader = own_loader(name)
    if loader is not None:
        loader.require(name)
        return
    description = read_description(name)
    if description is not None:
        require_name(description, name)
        name = description.architecture
    if name.startswith(TIMM):
        pretrained.require_timm(name.removeprefix(TIMM))
    elif user_code.address(name) is None and name not in model_names():
        raise _unknown_model(name) if description is None else unknown("model", shortened(name), model_names())


def _loaded(
    request: ModelRequest,
    train: bool,
    retrain: bool,
    recipe: CleanRecipe,
    report: Callable[[str, float | None], None],
    *,
    may_train: bool,
) -> PixelModel:
    loader = own_loader(request.name)
    if loader is not None:
        require_own_weights(request, train or retrain, or_checkpoint=loader.or_checkpoint)
        return loader.load(request, report)
    source = _source(request, train or retrain)
    if source == "training":
        return trained_model(request, recipe, retrain, report, may_train=may_train)
    if source == "checkpoint":
        return checkpoint_model(request, report)
    return (user_model if source == "user" else published_model)(request)


def _source(request: ModelRequest, train: bool) -> Literal["user", "checkpoint", "published", "training"]:
    """Where the weights come from."""
    if request.weights is not None and train:
        raise UserError("--weights and --train exclude each other; leave one out.")
    if str(request.weights).lower() == "none" and request.weights is not None and not Path(request.weights).is_file():
        raise UserError(
            f"--weights none would leave {request.name} untrained; pass --weights FILE, or --weights default for "
            "published ones, or --train."
        )
    if user_code.address(request.name) is not None:
        if train:
            raise UserError(
                f"{request.name} is used as its function returns it; leave out --train, and pass its --weights FILE."
            )
        return "user"
    if request.weights is not None:
        return "checkpoint" if is_checkpoint(request.weights) else "published"
    if request.images is not None and (train or request.images.name == "digits"):
        return "training"
    if request.images is None:
        raise UserError(
            f"{request.name} needs weights; pass --weights FILE, --weights default for those trained on ImageNet, "
            "or --dataset digits to train it here once."
        )
    if request.images.name == "imagenet":
        return "published"
    raise UserError(
        f"{request.name} has no weights for {request.images.name}; "
        "pass --weights FILE, or --train to train it here once."
    )


def _check_random(request: ModelRequest, train: bool) -> None:
    """Refuse random weights beside others, and for a model that is no architecture."""
    if request.weights is not None or train:
        raise UserError("--random-init leaves the weights random; leave out --weights, --train and --retrain.")
    if not request.name.startswith(TIMM) and request.name not in model_names():
        raise UserError(
            f"--random-init is for architectures of torchvision and timm, not for {shown_name(request.name)}; leave it "
            "out."
        )


def _unknown_model(name: str) -> UserError:
    path, shown = user_path(name), shortened(name)
    if path.is_dir():
        return UserError(
            f"{shown} is a folder; a Hugging Face model in it is --model hf:{shown}, and a network that another "
            "library loads from it comes from a function of yours: --model FILE.py:FUNCTION."
        )
    if path.suffix.lower() in _CHECKPOINTS and path.is_file():
        return UserError(f"{shown} does not say what network it is for; pass --model NAME --weights {shown}.")
    if path.suffix.lower() in _FILES:
        return no_file(f"There is no file {shown}", path, "check the path of the model")
    if len(path.parts) > 1 or path.suffix:
        return no_file(
            f"There is no model {shown}",
            path,
            "a model is a name of robustkit list models, timm:NAME, hf:ID or FILE.py:FUNCTION",
        )
    return unknown("model", shown, model_names())


def _silent(text: str, share: float | None) -> None:
    """No report."""
