"""What a model must know about the images that it classifies."""

from typing import NamedTuple

from robustkit.data import Dataset, load_dataset
from robustkit.data.published import PUBLISHED


class ImageSpec(NamedTuple):
    """Name, image shape and number of classes of a data set."""

    name: str
    shape: tuple[int, ...]  # [C, H, W]
    classes: int
    data: Dataset | None  # the data set itself; None if its files were not read


def image_spec_of(dataset: str | Dataset | None) -> ImageSpec | None:
    """The spec of a data set. For names of published data sets no file is read."""
    if dataset is None:
        return None
    if not isinstance(dataset, str):
        shape = tuple(dataset.batch([0])[0].shape[1:])
        return ImageSpec(dataset.name, shape, len(dataset.class_names), dataset)
    name = dataset.lower()
    if name == "imagenet":
        return ImageSpec(name, (3, 224, 224), 1000, None)
    if name in PUBLISHED:
        return ImageSpec(name, PUBLISHED[name].shape, PUBLISHED[name].classes, None)
    return image_spec_of(load_dataset(dataset))
