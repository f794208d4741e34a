"""Where a model comes from: a function of the user, a checkpoint, published weights, or a training here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from robustkit.black_box import RemoteAccess
from robustkit.data import NAMES
from robustkit.errors import UserError
from robustkit.host.files import sha256_of
from robustkit.paths import user_path
from robustkit.primitives import user_code

from . import adaptation, cache, checkpoint, factory, pretrained
from .adaptation import AdaptedNetwork, Stem
from .clean_training import CleanRecipe, Report
from .image_spec import ImageSpec
from .pixels import PixelModel
from .preprocessing import Normalisation, require_values
from .programs import is_program, load_program
from .train_once import load_or_train, training_split

IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of its training images, as torchvision
IMAGENET_CLASSES = 1000
TIMM = "timm:"
_USUAL_ACCESS = RemoteAccess()


@dataclass(frozen=True)
class ModelRequest:
    """The arguments of `load_model` that decide which network is built."""

    name: str
    images: ImageSpec | None
    weights: str | Path | None
    num_classes: int | None
    normalisation: Normalisation | None
    remote: RemoteAccess = _USUAL_ACCESS
    described: bool = False  # whether a file of robustkit says what the normalisation is, or that there is none

    @property
    def classes(self) -> int | None:
        """The number of classes that was given, or that the data set has."""
        return self.num_classes or (None if self.images is None else self.images.classes)


def file_of(name: str) -> Path | None:
    """The file that a model's name names; None for an architecture."""
    where = user_code.address(name)
    if where is not None:
        return where.file
    return user_path(name) if name.endswith(cache.SUFFIX) or is_program(name) else None


def user_model(request: ModelRequest) -> PixelModel:
    """The network that a function of the user returns, with the weights of a checkpoint if one is given."""
    where = user_code.address(request.name)
    assert where is not None
    built = factory.build(where, request.classes)
    require_values(built.network)
    network = built.network.cpu()
    source = f"{built.origin} of {where.file.name}"
    if request.weights is not None:
        source += checkpoint.load_file(network, request.weights, where.name, adapts=built.adapts)
    classes = request.num_classes or _last_width(network)
    model = PixelModel(
        network, name=where.name, source=source, num_classes=classes, normalisation=request.normalisation
    )
    # The file's constants and functions decide the logits too: its hash is part of a run's identity.
    model.code = built.code
    return model


def program_model(request: ModelRequest, report: Report) -> PixelModel:
    """The network in a TorchScript file or an exported program."""
    path = user_path(request.name)
    network = load_program(path, request.images, report).eval()
    classes = request.classes or IMAGENET_CLASSES
    model = PixelModel(
        network, name=path.stem, source=path.name, num_classes=classes, normalisation=request.normalisation
    )
    # What it computes does not show in its structure: the file's hash is part of a run's identity.
    model.code = sha256_of(path)
    return model


def checkpoint_model(request: ModelRequest, report: Report) -> PixelModel:
    """A known architecture with the weights of a checkpoint, normalised as published ones if it holds these."""
    assert request.weights is not None
    path = user_path(request.weights)
    state = checkpoint.read_state(path)
    classes = request.classes or IMAGENET_CLASSES
    adapted = _adapted(request, classes, _stem_of(state))
    checkpoint.load_weights(adapted.network, state, path, request.name)
    normalisation = request.normalisation if request.described else _normalisation(request, path)
    if normalisation is None and not request.described:
        report(f"{request.name}: pixels are not normalised; if they were in training, give --mean and --std", None)
    return _pixel_model(request, adapted, f"{request.name}, weights of {path.name}", classes, normalisation)


def _normalisation(request: ModelRequest, file: Path | None = None) -> Normalisation | None:
    """The one that is given, or belongs to the published weights in a file, or is usual on the images."""
    if request.normalisation is not None:
        return request.normalisation
    of_timm, imagenet = request.name.startswith(TIMM), request.images is not None and request.images.name == "imagenet"
    if of_timm:
        found = pretrained.timm_normalisation(request.name.removeprefix(TIMM)) if imagenet else None
    else:
        found = None if file is None else pretrained.torchvision_normalisation(request.name, file)
    return IMAGENET if found is None and imagenet else found


def published_model(request: ModelRequest) -> PixelModel:
    """A known architecture with its published weights, for images like those that they were trained on."""
    weights, images = str(request.weights or pretrained.DEFAULT), request.images
    if request.name.startswith(TIMM):
        if weights.lower() != pretrained.DEFAULT:
            raise UserError(
                f"timm names weights after the model; pass {request.name}.{weights} with --weights default."
            )
        published = pretrained.timm_pretrained(request.name.removeprefix(TIMM))
    else:
        published = pretrained.torchvision_pretrained(request.name, weights)
    _check_classes(request, published.num_classes)
    size = published.side if images is not None and max(images.shape[1:]) < published.side else None
    return PixelModel(
        published.network,
        name=request.name,
        source=f"{request.name}, published weights {published.weights}",
        num_classes=published.num_classes,
        size=size,
        gray=images is not None and images.shape[0] == 1,
        normalisation=request.normalisation or published.normalisation,
    )


def random_model(request: ModelRequest) -> PixelModel:
    """A known architecture with random weights, for tests of speed, memory and code; its results mean nothing."""
    classes = request.classes or IMAGENET_CLASSES
    adapted, source = _adapted(request, classes, None), f"{request.name}, random weights"
    return _pixel_model(request, adapted, source, classes, _normalisation(request))


def trained_model(
    request: ModelRequest, recipe: CleanRecipe, retrain: bool, report: Report, *, may_train: bool = True
) -> PixelModel:
    """A known architecture adapted to the data set and trained on it, or read from the cache."""
    assert request.images is not None
    data = training_split(request.images)
    classes = request.num_classes or max(request.images.classes, len(data.class_names))
    model = _pixel_model(request, _adapted(request, classes, None), "", classes, _normalisation(request))
    load_or_train(model, data, recipe, retrain, report, may_train=may_train)
    return model


def _check_classes(request: ModelRequest, published: int) -> None:
    images = request.images
    if request.num_classes not in (None, published):
        raise UserError(
            f"The published weights of {request.name} have {published} classes, not {request.num_classes}; "
            "leave out --num-classes, or pass --weights FILE."
        )
    # A folder or file of the user may have the classes of the weights; a data set known by name has its own.
    if images is not None and images.name in NAMES and images.classes != published:
        raise UserError(
            f"The published weights of {request.name} have {published} classes, and not those of {images.name}; "
            "pass --weights FILE, or --train to train it here once."
        )


def _adapted(request: ModelRequest, classes: int, of_checkpoint: Stem | None) -> AdaptedNetwork:
    """A network with random weights that works on the request's images, with the stem of its checkpoint."""
    shape = None if request.images is None else request.images.shape
    if request.name.startswith(TIMM):
        network = pretrained.timm_build(request.name.removeprefix(TIMM), classes)
    else:
        network = adaptation.build_torchvision(request.name, classes)
    if adaptation.is_resnet(request.name):
        stem = of_checkpoint or (Stem(7, 3) if shape is None else adaptation.stem_for(shape))
        return adaptation.with_stem(network, stem, shape)
    if shape is None:
        return AdaptedNetwork(network, None, False)
    return adaptation.with_resizing(network, request.name, shape)


def _pixel_model(
    request: ModelRequest, adapted: AdaptedNetwork, source: str, classes: int, normalisation: Normalisation | None
) -> PixelModel:
    return PixelModel(
        adapted.network,
        name=request.name,
        source=source,
        num_classes=classes,
        size=adapted.size,
        gray=adapted.gray,
        normalisation=normalisation,
    )


def _last_width(network: nn.Module) -> int:
    """Outputs of the last linear layer: right for most networks, and corrected once the images are known."""
    widths = [module.out_features for module in network.modules() if isinstance(module, nn.Linear)]
    return widths[-1] if widths else IMAGENET_CLASSES


def _stem_of(state: Mapping[str, Tensor]) -> Stem | None:
    """The stem that a ResNet's checkpoint was trained with."""
    prefixes = ("", "network.", "model.")
    weight = next((state[f"{prefix}conv1.weight"] for prefix in prefixes if f"{prefix}conv1.weight" in state), None)
    if weight is None or weight.shape[2:] not in ((3, 3), (7, 7)):
        return None
    return Stem(weight.shape[2], weight.shape[1])
