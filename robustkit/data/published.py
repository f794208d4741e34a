"""Published data sets, read by torchvision from the user's files, with the threat models that papers use."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from robustkit.errors import UserError
from robustkit.limits import shortened

from .dataset import DatasetOrigin, UsualThreat
from .pictures import LazyData, decode

SPLITS = ("train", "test")


class PublishedDataset(NamedTuple):
    """A published data set, as far as it is known without its files."""

    builder: str  # the class in torchvision.datasets
    shape: tuple[int, int, int]  # [C, H, W]
    classes: int
    threats: tuple[UsualThreat, ...]


_CIFAR_THREATS = (UsualThreat("Linf", "8/255"), UsualThreat("L2", "0.5"))
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# The radii that papers and RobustBench report first.
PUBLISHED = {
    "mnist": PublishedDataset("MNIST", (1, 28, 28), 10, (UsualThreat("Linf", "0.3"),)),
    "fashionmnist": PublishedDataset("FashionMNIST", (1, 28, 28), 10, (UsualThreat("Linf", "0.1"),)),
    "kmnist": PublishedDataset("KMNIST", (1, 28, 28), 10, (UsualThreat("Linf", "0.3"),)),
    "cifar10": PublishedDataset("CIFAR10", (3, 32, 32), 10, _CIFAR_THREATS),
    "cifar100": PublishedDataset("CIFAR100", (3, 32, 32), 100, _CIFAR_THREATS),
    "svhn": PublishedDataset("SVHN", (3, 32, 32), 10, (UsualThreat("Linf", "8/255"),)),
}


def class_names_of(name: str) -> tuple[str, ...]:
    """The class names of a data set of `PUBLISHED` without its files; none for those that only the files name."""
    from torchvision import datasets

    if name == "cifar10":
        return _CIFAR10
    if name == "svhn":
        return tuple(str(digit) for digit in range(PUBLISHED[name].classes))
    return tuple(getattr(getattr(datasets, PUBLISHED[name].builder), "classes", ()))


def load_published(name: str, split: str, data_dir: Path, download: bool) -> LazyData:
    """A data set of `PUBLISHED` from torchvision's files under `data_dir`.

    Raises:
        UserError: the files are missing or broken, or the download failed; the message names the fix.
    """
    published = PUBLISHED[name]
    items = _open(name, split, data_dir, download)
    labels = torch.as_tensor(items.labels if name == "svhn" else items.targets, device="cpu").long()
    classes = tuple(items.classes) if name != "svhn" else tuple(str(digit) for digit in range(published.classes))
    shape = tuple(decode(items, 0, f"The first image of {name}").shape)
    origin = DatasetOrigin(name, data_dir, splits=SPLITS)
    return LazyData(name, split, classes, published.threats, items, labels, shape, None, origin)


def _open(name: str, split: str, data_dir: Path, download: bool) -> Any:
    from torchvision import datasets
    from torchvision.transforms import ToTensor

    build = getattr(datasets, PUBLISHED[name].builder)
    selection: dict[str, Any] = {"split": split} if name == "svhn" else {"train": split == "train"}
    try:
        return build(str(data_dir), transform=ToTensor(), download=download, **selection)
    except Exception as error:  # torchvision raises almost anything for missing, truncated or wrong files
        raise UserError(_failure(name, data_dir, download, error)) from error


def _failure(name: str, data_dir: Path, download: bool, error: Exception) -> str:
    reason = shortened((str(error) or type(error).__name__).split("\n")[0].rstrip(".:"))
    place = shortened(data_dir)
    if download:
        return f"{name} could not be downloaded to {place} ({reason}); copy torchvision's files of it there by hand."
    if "not found" in reason.lower():
        outer = _outer_folder(name, data_dir)
        fix = "pass --download to download it there, or another --data-dir DIR"
        if outer is not None:
            fix = f"that is the inner folder, so give its parent: --data-dir {shortened(outer)}"
        return f"There is no whole copy of {name} in {place}; {fix}."
    return f"The files of {name} in {place} cannot be read ({reason}); remove them and pass --download."


def _outer_folder(name: str, data_dir: Path) -> Path | None:
    """The folder to be given where `data_dir` is one that torchvision makes in it; else None."""
    from torchvision import datasets

    builder = PUBLISHED[name].builder
    stored = Path(getattr(getattr(datasets, builder), "base_folder", f"{builder}/raw"))  # MNIST's form, if not CIFAR's
    place = data_dir.resolve()
    outer = (each for each in place.parents[:2] if place in (each / stored, each / stored.parent))
    return next((each for each in outer if (each / stored).is_dir()), None)
