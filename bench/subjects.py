"""The networks and images that the benchmarks run on.

Two sources: scikit-learn's digits with a network that robustkit trains here once (anyone can run that), and a folder
`--zoo DIR` whose `zoo.py` has `images(name)` and `model(name)` (networks of other people, with licences of their own).
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit import load_dataset, load_model


class Subject(NamedTuple):
    name: str
    model: nn.Module  # takes images in [0, 1], returns logits; in eval mode, weights frozen
    x: Tensor  # [N, *S] in [0, 1]
    y: Tensor  # [N] int64


def zoo(folder: Path, network: str, images: str, count: int) -> Subject:
    """A network of the zoo with the first images it classifies rightly."""
    module = _imported(folder / "zoo.py")
    return _rightly(network, module.model(network), *module.images(images), count)


def digits(network: str, count: int) -> Subject:
    """One of torchvision's networks, trained on digits and cached by robustkit."""
    data = load_dataset("digits")
    x, y = data.batch(range(len(data)))
    return _rightly(f"{network} on digits", load_model(network, dataset="digits"), x, y, count)


def _rightly(name: str, model: nn.Module, x: Tensor, y: Tensor, count: int) -> Subject:
    model = model.eval().requires_grad_(False)
    with torch.no_grad():
        right = torch.cat([model(part).argmax(1) for part in x.split(100)]) == y
    chosen = right.nonzero().flatten()[:count]
    return Subject(name, model, x[chosen].contiguous(), y[chosen])


def _imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("zoo", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
