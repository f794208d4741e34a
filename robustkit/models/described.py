"""Checkpoints that say what network they are for, so that `--model FILE` is enough."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from robustkit.errors import UserError

from . import cache
from .pixels import PixelModel

_KEY = "robustkit"


class Description(NamedTuple):
    """What has to be known to build the network again."""

    architecture: str
    name: str
    num_classes: int
    mean: list[float] | None
    std: list[float] | None


def described(path: str) -> Description | None:
    """The description in a file's header, or None where `path` is no such file at all.

    Raises:
        UserError: it is a checkpoint without one.
    """
    if not path.endswith(cache.SUFFIX):
        return None
    if not Path(path).is_file():
        raise UserError(f"There is no file {path}; check the path of the model.")
    text = (cache.about(Path(path)) or {}).get(_KEY)
    if text is None:
        raise UserError(f"{path} does not say what network it is for; pass --model NAME --weights {path}.")
    return Description(**json.loads(text))


def save_model(path: Path, model: PixelModel, architecture: str, name: str, more: Mapping[str, str]) -> None:
    """Write the network's weights with the description, whole or not at all.

    Args:
        path: a `.safetensors` file.
        model: whose weights and normalisation are kept.
        architecture: the name that builds it, such as "resnet18".
        name: what reports call it.
        more: further entries of the header.

    Raises:
        UserError: the file cannot be written.
    """
    mean, std = (model.mean.flatten().tolist(), model.std.flatten().tolist()) if model.normalises else (None, None)
    description = Description(architecture, name, model.num_classes, mean, std)
    state: Mapping[str, Tensor] = model.network.state_dict()
    try:
        cache.store(path, state, {_KEY: json.dumps(description._asdict()), **more})
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); give another --out.") from None
