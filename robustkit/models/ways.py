"""The four ways to a model: a function of the user, a checkpoint, published weights, a training here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from robustkit.data import NAMES
from robustkit.errors import UserError
from robustkit.primitives import user_code

from . import checkpoint, factory, pretrained, stem
from .pixels import PixelModel
from .stem import Fitted, Stem
from .target import Target
from .trained import give_trained_weights, training_split
from .training import CleanRecipe, Report

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of its training images, as torchvision
IMAGENET_CLASSES = 1000
TIMM = "timm:"


@dataclass(frozen=True)
class Wish:
    """What a caller asked for, resolved as far as names go."""

    name: str
    target: Target | None
    weights: str | Path | None
    num_classes: int | None
    mean: Sequence[float] | None
    std: Sequence[float] | None

    @property
    def classes(self) -> int | None:
        """The number of classes asked for, or that the data set has."""
        return self.num_classes or (None if self.target is None else self.target.classes)


def own(wish: Wish) -> PixelModel:
    """What a function of the user returns, with the weights of a checkpoint if one is given."""
    where = user_code.address(wish.name)
    assert where is not None
    built = factory.build(where, wish.classes)
    network = built.network.cpu()
    source = f"{where.function}() of {where.file.name}"
    if wish.weights is not None:
        path = Path(wish.weights).expanduser()
        checkpoint.fit(network, checkpoint.read_state(path), path, where.name)
        source += f", weights of {path.name}"
    classes = wish.num_classes or _last_width(network)
    model = PixelModel(network, name=where.name, source=source, num_classes=classes, mean=wish.mean, std=wish.std)
    # The file's constants and functions decide the logits too: a run is told by them which model it was.
    model.code = built.code
    return model


def from_file(wish: Wish) -> PixelModel:
    """A known architecture with the weights of a checkpoint."""
    assert wish.weights is not None
    path = Path(wish.weights).expanduser()
    state = checkpoint.read_state(path)
    fitted = _built(wish, wish.classes or IMAGENET_CLASSES, _stem_of(state))
    checkpoint.fit(fitted.network, state, path, wish.name)
    return _pixels(wish, fitted, f"{wish.name}, weights of {path.name}", wish.classes or IMAGENET_CLASSES)


def published(wish: Wish) -> PixelModel:
    """A known architecture with the weights that its makers publish, for the data they were trained on."""
    weights, target = str(wish.weights or pretrained.DEFAULT), wish.target
    if wish.name.startswith(TIMM):
        if weights.lower() != pretrained.DEFAULT:
            raise UserError(f"timm names weights after the model; pass {wish.name}.{weights} with --weights default.")
        found = pretrained.timm_pretrained(wish.name.removeprefix(TIMM))
    else:
        found = pretrained.torchvision_pretrained(wish.name, weights)
    if wish.num_classes not in (None, found.num_classes):
        raise UserError(
            f"The published weights of {wish.name} have {found.num_classes} classes, not {wish.num_classes}; "
            "leave out --num-classes, or pass --weights FILE."
        )
    # The classes of a folder or file of the user may well be the weights' own; those of a known data set are not.
    if target is not None and target.name in NAMES and target.classes != found.num_classes:
        raise UserError(
            f"The published weights of {wish.name} know {found.num_classes} classes, and not those of {target.name}; "
            "pass --weights FILE, or --train to train it here once."
        )
    size = found.side if target is not None and max(target.shape[1:]) < found.side else None
    return PixelModel(
        found.network,
        name=wish.name,
        source=f"{wish.name}, published weights {found.weights}",
        num_classes=found.num_classes,
        size=size,
        gray=target is not None and target.shape[0] == 1,
        mean=found.mean if wish.mean is None else wish.mean,
        std=found.std if wish.std is None else wish.std,
    )


def trained(wish: Wish, recipe: CleanRecipe, retrain: bool, report: Report) -> PixelModel:
    """A known architecture fitted to the data set and trained on it, once."""
    assert wish.target is not None
    data = training_split(wish.target)
    classes = wish.num_classes or max(wish.target.classes, len(data.class_names))
    model = _pixels(wish, _built(wish, classes, None), "", classes)
    give_trained_weights(model, data, recipe, retrain, report)
    return model


def _built(wish: Wish, classes: int, given: Stem | None) -> Fitted:
    """A network with random weights that works on the target's images; `given` is the stem of its checkpoint."""
    shape = None if wish.target is None else wish.target.shape
    if wish.name.startswith(TIMM):
        network = pretrained.timm_build(wish.name.removeprefix(TIMM), classes)
    else:
        network = stem.build_torchvision(wish.name, classes)
    if stem.is_resnet(wish.name):
        wanted = given or (Stem(7, 3) if shape is None else stem.stem_for(shape))
        return stem.with_stem(network, wanted, shape)
    return Fitted(network, None, False) if shape is None else stem.resized(network, wish.name, shape)


def _pixels(wish: Wish, fitted: Fitted, source: str, classes: int) -> PixelModel:
    usual = wish.target is not None and wish.target.name == "imagenet"
    return PixelModel(
        fitted.network,
        name=wish.name,
        source=source,
        num_classes=classes,
        size=fitted.size,
        gray=fitted.gray,
        mean=IMAGENET_MEAN if usual and wish.mean is None else wish.mean,
        std=IMAGENET_STD if usual and wish.std is None else wish.std,
    )


def _last_width(network: nn.Module) -> int:
    """Outputs of the last linear layer: right for most networks, and corrected once the images are known."""
    widths = [module.out_features for module in network.modules() if isinstance(module, nn.Linear)]
    return widths[-1] if widths else IMAGENET_CLASSES


def _stem_of(state: Mapping[str, Tensor]) -> Stem | None:
    """The stem that a ResNet's checkpoint was trained with."""
    first = next(
        (
            state[key]
            for key in state
            if key.rpartition("conv1.")[0] in ("", "network.", "model.") and key.endswith("conv1.weight")
        ),
        None,
    )
    return Stem(first.shape[2], first.shape[1]) if first is not None and first.shape[2:] in ((3, 3), (7, 7)) else None
