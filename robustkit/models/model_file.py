"""Model files: checkpoints that also say which network they are for, so that `--model FILE` is enough."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from robustkit.errors import UserError, no_file
from robustkit.host.files import check_no_special_file, is_file

from . import cache
from .pixels import PixelModel

_KEY = "robustkit"


class Description(NamedTuple):
    """All that is needed to build the network again."""

    architecture: str  # the name that builds it, such as "resnet18"
    name: str  # what reports call the model
    num_classes: int
    mean: list[float] | None
    std: list[float] | None


def read_description(path: str) -> Description | None:
    """The description in the header of a model file, or None if `path` does not end as one.

    Raises:
        UserError: there is no such file, or it has no description.
    """
    if not path.endswith(cache.SUFFIX):
        return None
    if not is_file(Path(path)):
        raise no_file(f"There is no file {path}", Path(path), "check the path of the model")
    text = (cache.metadata(Path(path)) or {}).get(_KEY)
    if text is None:
        raise UserError(f"{path} does not say what network it is for; pass --model NAME --weights {path}.")
    entries = json.loads(text)
    return Description(**{key: entries[key] for key in Description._fields})


def check_replaceable(path: Path) -> None:
    """Check that a model may be written to `path`: there is no file, or one that `save_model` wrote.

    Raises:
        UserError: there is something else, such as weights of the user.
    """
    check_no_special_file(path)
    if path.exists() and _KEY not in (cache.metadata(path) or {}):
        raise UserError(f"{path} was not written by robustkit, so it is not replaced; give another --out, or move it.")


def save_model(path: Path, model: PixelModel, architecture: str, name: str, more: Mapping[str, str]) -> None:
    """Write the network's weights with the description; the file is complete or not written at all.

    Args:
        path: a `.safetensors` file.
        model: its weights and its normalisation are stored.
        architecture: the name that builds it, such as "resnet18".
        name: what reports call it.
        more: other entries of the header.

    Raises:
        UserError: the file cannot be written.
    """
    mean, std = (model.mean.flatten().tolist(), model.std.flatten().tolist()) if model.normalises else (None, None)
    description = Description(architecture, name, model.num_classes, mean, std)
    state: Mapping[str, Tensor] = model.network.state_dict()
    try:
        # One entry: safetensors writes several in a random order, and equal trainings must give equal bytes.
        cache.store(path, state, {_KEY: json.dumps({**more, **description._asdict()})})
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); give another --out.") from None
