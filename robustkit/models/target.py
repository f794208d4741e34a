"""What a model has to know about the images it is for."""

from typing import NamedTuple

from robustkit.data import Dataset, load_dataset
from robustkit.data.published import PUBLISHED


class Target(NamedTuple):
    """Name, shape and classes of a data set, and the data set itself where it is at hand."""

    name: str
    shape: tuple[int, ...]  # [C, H, W]
    classes: int
    data: Dataset | None


def target_of(dataset: str | Dataset | None) -> Target | None:
    """What is known of a data set; published ones are known without their files."""
    if dataset is None:
        return None
    if not isinstance(dataset, str):
        shape = tuple(dataset.batch([0])[0].shape[1:])
        return Target(dataset.name, shape, len(dataset.class_names), dataset)
    name = dataset.lower()
    if name == "imagenet":
        return Target(name, (3, 224, 224), 1000, None)
    if name in PUBLISHED:
        return Target(name, PUBLISHED[name].shape, PUBLISHED[name].classes, None)
    return target_of(load_dataset(dataset))
