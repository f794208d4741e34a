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
    known = json.loads(text)
    return Description(**{key: known[key] for key in Description._fields})


def save_model(path: Path, model: PixelModel, architecture: str, name: str, more: Mapping[str, str]) -> None:
    """Write the network's weights with the description, whole or not at all.

    Args:
        path: a `.safetensors` file.
        model: whose weights and normalisation are kept.
        architecture: the name that builds it, such as "resnet18".
        name: what reports call it.
        more: what else should be known of it.

    Raises:
        UserError: the file cannot be written.
    """
    mean, std = (model.mean.flatten().tolist(), model.std.flatten().tolist()) if model.normalises else (None, None)
    description = Description(architecture, name, model.num_classes, mean, std)
    state: Mapping[str, Tensor] = model.network.state_dict()
    try:
        # One entry: safetensors writes several in an order of its own each time, and equal trainings have equal bytes.
        cache.store(path, state, {_KEY: json.dumps({**more, **description._asdict()})})
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); give another --out.") from None
