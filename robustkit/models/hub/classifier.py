"""`hf:ID-or-folder`: image classifiers of Hugging Face's transformers, as classifiers of pixels."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.data.published import PUBLISHED, class_names_of
from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.models import checkpoint
from robustkit.models.clean_training import Report
from robustkit.models.image_spec import ImageSpec
from robustkit.models.pixels import PixelModel
from robustkit.models.preprocessing import Normalisation, Preprocessed
from robustkit.models.pretrained import PublishedImages
from robustkit.models.sources import ModelRequest

from .building import built, require_plain
from .folders import HubFolder, open_folder, require_address
from .labels import order_of, partly_named
from .library import quiet_transformers, require_transformers
from .processors import Processing, read_processing

PREFIX = "hf:"
_PLACE_AND_VERSION = ("_name_or_path", "name_or_path", "transformers_version")  # of a configuration: no behaviour
_CHANNELS = 3


class HubClassifier(Preprocessed):
    """A network of transformers that returns its logits, in the order of the data set's classes.

    Args:
        network: returns an object with `.logits`.
        order: the number of the network's logit for each logit that is returned; None keeps the network's order.
    """

    def __init__(self, network: nn.Module, order: tuple[int, ...] | None) -> None:
        super().__init__()
        self.network = network
        self.order: Tensor | None
        self.register_buffer("order", None if order is None else torch.tensor(order, device="cpu"), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of preprocessed images."""
        logits: Tensor = self.network(x).logits
        return logits if self.order is None else logits.index_select(1, self.order)


def require(where: str) -> None:
    """Check that there may be such a model, without asking the network.

    Raises:
        UserError: transformers is not installed, or there is no such folder and no such ID.
    """
    require_transformers(PREFIX + where)
    require_address(where)


def load(request: ModelRequest, report: Report) -> PixelModel:
    """The model of a request whose name begins with "hf:"; `report` is called with a warning about its classes.

    Raises:
        UserError: it is no image classifier, cannot be downloaded, or has no safetensors; the message names the fix.
    """
    where = request.name.removeprefix(PREFIX)
    require(where)
    folder = open_folder(where)
    _require_classifier(folder.config, where)
    network = _network(folder, where)
    if request.num_classes not in (None, network.config.num_labels):
        raise UserError(
            f"{request.name} has {network.config.num_labels} classes, not {request.num_classes}; leave out "
            "--num-classes."
        )
    source = f"{type(network).__name__} from {folder.source}"
    if request.weights is not None:
        source += checkpoint.load_file(network, request.weights, request.name, adapts=False)
    labels, wanted = _labels(folder.config), classes_of(request.images)
    order = order_of(labels, wanted)
    warning = partly_named(labels, wanted)
    if warning:
        report(f"{request.name}: {warning}", None)
    source += "" if order is None else ", its classes in the order of the data"
    processing = read_processing(folder.path, where, _channels(folder.config))
    return pixel_model(request, folder, HubClassifier(network, order), processing, network.config.num_labels, source)


def images(where: str) -> PublishedImages:
    """The images that a model is for; no weights are read.

    Raises:
        UserError: there is no such model or no image processor.
    """
    require(where)
    folder = open_folder(where, weights=False)
    processing = read_processing(folder.path, where, _channels(folder.config))
    return PublishedImages(processing.resize, processing.side, _labels(folder.config), len(processing.mean))


def pixel_model(
    request: ModelRequest, folder: HubFolder, network: nn.Module, processing: Processing, classes: int, source: str
) -> PixelModel:
    """A network with the preprocessing of its own image processor."""
    gray = request.images is not None and request.images.shape[0] == 1 and len(processing.mean) == _CHANNELS
    model = PixelModel(
        network,
        name=folder.name,
        source=source,
        num_classes=classes,
        gray=gray,
        normalisation=request.normalisation or Normalisation(processing.mean, processing.std),
        fit=processing.fit,
    )
    # A network of transformers reads settings that its repr does not show.
    model.code = _hash_of({key: value for key, value in folder.config.items() if key not in _PLACE_AND_VERSION})
    return model


def classes_of(images: ImageSpec | None) -> Sequence[str]:
    """The class names of a data set; none if they are not known."""
    if images is None:
        return ()
    if images.data is not None:
        return images.data.class_names
    if images.name in PUBLISHED:
        return class_names_of(images.name)
    from torchvision.models._meta import _IMAGENET_CATEGORIES

    return tuple(_IMAGENET_CATEGORIES) if images.name == "imagenet" else ()


def _network(folder: HubFolder, where: str) -> Any:
    with quiet_transformers() as transformers:
        return built(transformers, "AutoModelForImageClassification", folder, where, return_dict=True)


def _require_classifier(config: dict[str, Any], where: str) -> None:
    require_plain(config, where)
    architectures = [str(each) for each in config.get("architectures") or ()]
    shown, timm = shortened(where), config.get("architecture")
    if config["model_type"] == "timm_wrapper" or isinstance(timm, str):
        raise UserError(f"{shown} is a model of timm; pass --model timm:{shortened(timm)} with --weights.")
    if not architectures or any("ForImageClassification" in each for each in architectures):
        return
    fix = "name a model whose class ends in ForImageClassification"
    if config["model_type"] == "clip":
        fix = f"pass --model clip:{shown} for zero-shot classification"
    raise UserError(f"{shown} is a {shortened(architectures[0])} and no image classifier; {fix}.")


def _labels(config: dict[str, Any]) -> tuple[str, ...]:
    """The class names of a configuration, in the order of the logits; none if it has none."""
    labels = config.get("id2label")
    if not isinstance(labels, dict) or {*labels} != {str(number) for number in range(len(labels))}:
        return ()
    return tuple(str(labels[str(number)]) for number in range(len(labels)))


def _channels(config: dict[str, Any]) -> int:
    channels = config.get("num_channels", _CHANNELS)
    return channels if type(channels) is int and 0 < channels <= _CHANNELS + 1 else _CHANNELS


def _hash_of(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
