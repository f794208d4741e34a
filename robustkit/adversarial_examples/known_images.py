"""What is known about the images of a model before it is loaded: their size, their classes, the usual radius."""

from pathlib import Path
from typing import NamedTuple

from robustkit.data import NAMES, Dataset, UsualThreat, load_dataset
from robustkit.data.folder import IMAGENET_THREATS, THREATS
from robustkit.data.published import PUBLISHED, class_names_of
from robustkit.errors import UserError
from robustkit.models import is_checkpoint, require_known
from robustkit.models.black_boxes import is_black_box
from robustkit.models.image_spec import image_spec_of
from robustkit.models.prefixes import prefixed
from robustkit.models.pretrained import timm_images, torchvision_images
from robustkit.models.sources import TIMM, file_of

_IMAGENET_RESIZE = 256  # as evaluations do: the short side, before the centre of 224 is cropped


class KnownImages(NamedTuple):
    """The images that a model is for."""

    dataset: str | Dataset | None = None  # what the model is loaded for; None for the images that are attacked
    weights: str | None = None
    channels: int | None = None
    resize: int | None = None  # the short side; None leaves a picture as it is
    crop: int | None = None
    class_names: tuple[str, ...] = ()
    threats: tuple[UsualThreat, ...] = THREATS


def known_images(
    model: str,
    weights: str | None,
    dataset: str | None,
    data_dir: Path | None,
    image_size: int | None,
    *,
    gray: bool = False,
) -> KnownImages:
    """What name, weights and data set of a model say about its images. No weights are read or downloaded.

    Raises:
        UserError: there is no such model, data set or published weights, or it is not pictures that are to be `gray`.
    """
    require_known(model)
    if dataset is not None:
        return _of_dataset(weights, dataset, data_dir, image_size, gray)
    if gray:
        raise UserError("--gray is about the images of --dataset; without it they are read as the model takes them.")
    by_prefix = prefixed(model)
    if by_prefix is not None:
        images = by_prefix.loader.images(by_prefix.rest)
        resize, crop = (images.resize, images.side) if image_size is None else (image_size, image_size)
        return KnownImages(None, weights, images.channels, resize, crop, images.class_names, IMAGENET_THREATS)
    if is_published(model, weights):
        name, version = model.removeprefix(TIMM), weights or "default"
        images = timm_images(name) if model.startswith(TIMM) else torchvision_images(name, version)
        resize, crop = (images.resize, images.side) if image_size is None else (image_size, image_size)
        return KnownImages(None, version, 3, resize, crop, images.class_names, IMAGENET_THREATS)
    return KnownImages(None, weights, None, image_size, image_size)


def is_published(model: str, weights: str | None) -> bool:
    """Whether a model gets published weights when no data set is named."""
    if weights is not None and is_checkpoint(weights):
        return False
    return prefixed(model) is None and not is_black_box(model) and file_of(model) is None


def _of_dataset(
    weights: str | None, dataset: str, data_dir: Path | None, image_size: int | None, gray: bool
) -> KnownImages:
    name = dataset.lower()
    if name not in NAMES or name == "digits" or data_dir is not None or gray:
        data = load_dataset(dataset, data_dir=data_dir, image_size=image_size, gray=gray)
        channels, *sides = data.batch([0])[0].shape[1:]
        _require_square(dataset, sides)
        resize = _IMAGENET_RESIZE if name == "imagenet" else sides[0]
        return KnownImages(data, weights, channels, resize, sides[0], data.class_names, data.threats)
    if image_size is not None:
        raise UserError(f"The size of {name} is fixed; leave out --image-size.")
    spec = image_spec_of(name)
    assert spec is not None
    channels, side, _ = spec.shape
    if name == "imagenet":
        from torchvision.models._meta import _IMAGENET_CATEGORIES

        return KnownImages(name, weights, 3, _IMAGENET_RESIZE, side, tuple(_IMAGENET_CATEGORIES), IMAGENET_THREATS)
    return KnownImages(name, weights, channels, side, side, class_names_of(name), PUBLISHED[name].threats)


def _require_square(dataset: str, sides: list[int]) -> None:
    if sides[0] != sides[1]:
        raise UserError(
            f"The images of {dataset} are {sides[1]}x{sides[0]}, but image files are cut to squares; pass --image-size."
        )
