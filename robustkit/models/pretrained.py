"""Networks with published weights, from torchvision and timm."""

import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

from torch import nn

from robustkit.errors import UserError, unknown
from robustkit.host.files import sha256_of
from robustkit.host.torchvision_import import torchvision
from robustkit.limits import shortened

from .preprocessing import Normalisation

DEFAULT = "default"
_HASH = re.compile(r"-([a-f0-9]{8,})\.")  # the start of a SHA-256, in the name of each file of torch and torchvision


class Pretrained(NamedTuple):
    """A network with published weights, and the images that they were trained on."""

    network: nn.Module
    weights: str
    num_classes: int
    side: int  # of those images, in pixels
    normalisation: Normalisation


class PublishedImages(NamedTuple):
    """The images that published weights were trained on."""

    resize: int | None  # the short side, before the centre is cropped; None leaves it
    side: int | None
    class_names: tuple[str, ...]  # () if they are not known
    channels: int = 3


def torchvision_images(name: str, weights: str) -> PublishedImages:
    """What the weights of a torchvision model are for; nothing is downloaded.

    Raises:
        UserError: there are no such weights.
    """
    entry = _entry(name, weights)
    images: Any = entry.transforms()
    return PublishedImages(images.resize_size[0], images.crop_size[0], tuple(entry.meta["categories"]))


def timm_images(name: str) -> PublishedImages:
    """What the published weights of a timm model are for; nothing is downloaded.

    Raises:
        UserError: timm is not installed, or has no such model or weights.
    """
    from torchvision.models._meta import _IMAGENET_CATEGORIES

    config = _timm(name).get_pretrained_cfg(name)
    if config is None:
        raise UserError(f"timm has no weights of {name}; pass --weights FILE.")
    side = config.input_size[1]
    imagenet = config.num_classes == len(_IMAGENET_CATEGORIES)
    return PublishedImages(round(side / config.crop_pct), side, tuple(_IMAGENET_CATEGORIES) if imagenet else ())


def torchvision_names() -> list[str]:
    """The classification models of torchvision."""
    # Detection, segmentation, video and quantised models live in modules below this one.
    return list(torchvision().models.list_models(module=torchvision().models))


def weight_names(name: str) -> list[str]:
    """Names of the published weights of a torchvision model, with "DEFAULT"."""
    return ["DEFAULT", *(weights.name for weights in torchvision().models.get_model_weights(name))]


def torchvision_normalisation(name: str, file: Path) -> Normalisation | None:
    """That of the published weights of a torchvision model which a file holds; None for any other file."""
    digest = sha256_of(file)
    for entry in torchvision().models.get_model_weights(name):
        published = _HASH.search(entry.url)
        if published is not None and digest.startswith(published[1]):
            images: Any = entry.transforms()
            return Normalisation(images.mean, images.std)
    return None


def timm_normalisation(name: str) -> Normalisation | None:
    """That of the images for which timm describes a model; None if it does not."""
    config = _timm(name).get_pretrained_cfg(name)
    return None if config is None else Normalisation(config.mean, config.std)


def torchvision_pretrained(name: str, weights: str) -> Pretrained:
    """The torchvision model with its published weights, from torch's cache or downloaded.

    Raises:
        UserError: there are no such weights, or they cannot be downloaded.
    """
    entry = _entry(name, weights)
    try:
        _require_whole(_cached(entry.url))
        network = torchvision().models.get_model(name, weights=entry)
    except (OSError, RuntimeError) as error:  # URLError is an OSError, a wrong hash a RuntimeError
        raise _not_downloaded(name, error) from error
    images: Any = entry.transforms()
    normalisation = Normalisation(images.mean, images.std)
    return Pretrained(network, entry.name, len(entry.meta["categories"]), images.crop_size[0], normalisation)


def _entry(name: str, weights: str) -> Any:
    """The description of published weights in torchvision.

    Raises:
        UserError: there are no such weights.
    """
    chosen = {weight.upper(): weight for weight in weight_names(name)}.get(weights.upper())
    if chosen is None:
        raise unknown(f"checkpoint file or published weights of {name}", weights, weight_names(name))
    return getattr(torchvision().models.get_model_weights(name), chosen)


def _cached(url: str) -> Path:
    """Where torch keeps the download."""
    from torch.hub import get_dir

    return Path(get_dir(), "checkpoints", Path(urlparse(url).path).name)


def _require_whole(file: Path) -> None:
    """Refuse a cached download that is not what was published: torch compares hashes only while it downloads.

    Raises:
        UserError: it is another file. torchvision would run code in it.
        OSError: it cannot be read.
    """
    published = _HASH.search(file.name)
    if published is None or not file.exists():
        return
    whole = file.is_file() and sha256_of(file).startswith(published[1])
    if not whole:
        raise UserError(f"{shortened(file)} is not the file that was published (its hash differs); delete it.")


def timm_build(name: str, num_classes: int) -> nn.Module:
    """The timm model with random weights."""
    network: nn.Module = _timm(name).create_model(name, pretrained=False, num_classes=num_classes)
    return network


def timm_pretrained(name: str) -> Pretrained:
    """The timm model with its published weights.

    Raises:
        UserError: timm is not installed, has no such model or weights, or they cannot be downloaded.
    """
    timm = _timm(name)
    described = timm.get_pretrained_cfg(name)
    if described is not None and _returns_features(described):
        raise UserError(
            f"The published weights of {name} are those of a backbone, which returns features and no classes; name "
            "weights with classes, or pass --weights FILE."
        )
    try:
        network = timm.create_model(name, pretrained=True)
    except (OSError, RuntimeError) as error:
        # Their files have no published hashes, by which the normalisation could be told.
        raise _not_downloaded(name, error, _as_options(timm_normalisation(name))) from error
    config = network.pretrained_cfg
    tag = config.get("tag") or DEFAULT
    normalisation = Normalisation(config["mean"], config["std"])
    return Pretrained(network, tag, config["num_classes"], config["input_size"][1], normalisation)


def _returns_features(described: Any) -> bool:
    """Whether weights are those of a backbone, or of the image tower of CLIP, whose features timm counts as classes."""
    name = f"{described.architecture}.{described.tag}"
    tower = ("clip" in name or "_pe_core_" in name) and "_ft_in" not in name  # fine-tuned ones have ImageNet's classes
    return tower or not described.num_classes


def require_timm(name: str) -> None:
    """Check that there is a timm model of that name.

    Raises:
        UserError: timm is not installed, or has no such model.
    """
    _timm(name)


def _timm(name: str) -> Any:
    try:
        import timm
    except ImportError as error:
        raise UserError(f"timm:{name} needs timm; install it: pip install timm.") from error
    if not timm.is_model(name):
        raise unknown("timm model", name, timm.list_models())
    try:
        timm.get_pretrained_cfg(name)
    except RuntimeError:  # timm looks at the model's name alone, before it looks for weights of that tag
        raise unknown("timm model", name, timm.list_models(f"{name.partition('.')[0]}.*", pretrained=True)) from None
    return timm


def _as_options(normalisation: Normalisation | None) -> str:
    values = () if normalisation is None else zip(("--mean", "--std"), normalisation, strict=True)
    return "".join(f" {option} {','.join(map(str, numbers))}" for option, numbers in values)


def _not_downloaded(name: str, error: Exception, more: str = "") -> UserError:
    reason = str(error).split("\n")[0].rstrip(".")
    return UserError(
        f"The weights of {name} could not be downloaded ({reason}); download them on a connected machine, "
        f"copy the file here and pass --weights FILE{more}."
    )
