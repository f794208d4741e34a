"""`robustbench:ID`: models of RobustBench, built by the user's own installation of it.

Croce et al. 2021, arXiv:2010.09670. The package is not a dependency: it is not kept on PyPI, and it downloads weights
and loads them with its own code.
"""

import importlib
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from robustkit.data.published import class_names_of
from robustkit.errors import UserError, unknown
from robustkit.limits import shortened

from . import cache, checkpoint
from .image_spec import image_spec_of
from .pixels import PixelModel
from .pretrained import PublishedImages
from .sources import ModelRequest

PREFIX = "robustbench:"
_THREATS = ("Linf", "L2", "corruptions")
_RESIZE = {"cifar10": 32, "cifar100": 32, "imagenet": 256}  # data sets, with the short side before the crop
_OWN_FOLDER = Path("models")  # where RobustBench keeps weights by default


class BenchmarkEntry(NamedTuple):
    """A model of the leaderboard."""

    dataset: str | None  # None takes the one that is evaluated
    threat: str
    name: str


def require(where: str) -> None:
    """Check that RobustBench is installed, and that a name has its form.

    Raises:
        UserError: it is not, or the name has another form.
    """
    parsed(where)
    _utils(where)


def load(request: ModelRequest) -> PixelModel:
    """The model of a request whose name begins with "robustbench:"; it takes pixels in [0, 1].

    Raises:
        UserError: RobustBench is not installed, has no such model, or cannot load it.
    """
    where = request.name.removeprefix(PREFIX)
    entry = parsed(where)
    dataset = entry.dataset or (None if request.images is None else request.images.name)
    if dataset not in _RESIZE:
        raise UserError(
            f"{shortened(request.name)} does not say which data it is for; write {PREFIX}cifar10/Linf/{entry.name}."
        )
    network, source = _network(where, entry, dataset), f"{dataset}/{entry.threat}/{entry.name} of RobustBench"
    if request.weights is not None:
        source += checkpoint.load_file(network, request.weights, request.name, adapts=False)
    spec = image_spec_of(dataset)
    assert spec is not None
    return PixelModel(
        network,
        name=entry.name,
        source=source,
        num_classes=spec.classes,
        normalisation=request.normalisation,
    )


def images(where: str) -> PublishedImages:
    """The images that a model is for; no weights are read.

    Raises:
        UserError: RobustBench is not installed, or the name does not say it.
    """
    require(where)
    dataset = parsed(where).dataset
    if dataset is None:
        raise UserError(f"{PREFIX}{shortened(where)} does not say which data it is for; pass --dataset.")
    spec = image_spec_of(dataset)
    assert spec is not None
    names = () if dataset == "imagenet" else class_names_of(dataset)
    return PublishedImages(_RESIZE[dataset], spec.shape[1], names)


def parsed(where: str) -> BenchmarkEntry:
    """ "NAME" or "DATASET/THREAT/NAME" taken apart.

    Raises:
        UserError: it has another form, or RobustBench has no such data or threat.
    """
    parts = where.split("/")
    if len(parts) not in (1, 3) or not parts[-1]:
        raise UserError(f"{PREFIX}{shortened(where)}: write {PREFIX}NAME or {PREFIX}cifar10/Linf/NAME.")
    if len(parts) == 1:
        return BenchmarkEntry(None, _THREATS[0], where)
    dataset, threat, name = parts
    if dataset not in _RESIZE:
        raise unknown("data set of RobustBench", dataset, _RESIZE)
    if threat not in _THREATS:
        raise unknown("threat of RobustBench", threat, _THREATS)
    return BenchmarkEntry(dataset, threat, name)


def _network(where: str, entry: BenchmarkEntry, dataset: str) -> nn.Module:
    stored = _OWN_FOLDER / dataset / entry.threat
    on_disk = any((stored / f"{entry.name}{ending}.pt").is_file() for ending in ("", "_m0"))
    folder = _OWN_FOLDER if on_disk else cache.folder().parent / "robustbench"
    try:
        network = _utils(where).load_model(
            model_name=entry.name, model_dir=str(folder), dataset=dataset, threat_model=entry.threat
        )
    except KeyError as error:
        raise UserError(
            f"RobustBench has no model {shortened(entry.name)} for {dataset} and {entry.threat}; see its model zoo, or "
            "update it."
        ) from error
    except Exception as error:  # of downloads, of timm and of checkpoints
        reason = shortened(str(error).strip().split("\n")[0].rstrip(".:") or type(error).__name__)
        raise UserError(
            f"RobustBench could not load {shortened(where)} ({reason}); put its checkpoint into "
            f"{folder / dataset / entry.threat}, named {entry.name}.pt."
        ) from error
    assert isinstance(network, nn.Module)
    return network.cpu().eval()


def _utils(where: str) -> Any:
    try:
        return importlib.import_module("robustbench.utils")
    except ImportError as error:
        raise UserError(
            f"{PREFIX}{shortened(where)} needs RobustBench and what it imports; install it: pip install "
            "git+https://github.com/RobustBench/robustbench.git."
        ) from error
