"""Model files: checkpoints that also say which network they are for, so that `--model FILE` is enough.

For a network that a user's file builds it is not enough: a checkpoint is data, and data never chooses what code is run.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError
from robustkit.host.files import check_no_special_file
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path
from robustkit.primitives import user_code

from . import cache
from .pixels import PixelModel
from .prefixes import prefixed
from .preprocessing import network_in

_KEY = "robustkit"
# Of a description that `save_model` wrote: names are paths at most, and statistics belong to pixels.
_LETTERS, _CHANNELS, _LARGEST = 4096, 1024, 1e9


class Description(NamedTuple):
    """All that is needed to build the network again."""

    architecture: str  # the name that builds it, such as "resnet18"
    name: str  # what reports call the model
    num_classes: int
    mean: list[float] | None
    std: list[float] | None


def read_description(path: str | Path) -> Description | None:
    """The description in the header of a model file, or None if `path` does not end as one.

    The architecture may be any text: `require_name` tells whether it is more than data.

    Raises:
        UserError: there is no such file, or it has no description.
    """
    if not str(path).endswith(cache.SUFFIX):
        return None
    file = user_path(path)
    if not file.is_file():
        raise no_file(f"There is no file {shortened(path)}", file, "check the path of the model")
    text = (cache.metadata(file) or {}).get(_KEY)
    description = None if text is None else _parsed(text)
    if description is None:
        place = shortened(path)
        raise UserError(f"{place} does not say what network it is for; pass --model NAME --weights {place}.")
    return description


def description_of_weights(weights: str | Path | None) -> Description | None:
    """The description in the header of weights, or None if they have none."""
    if weights is None or not str(weights).endswith(cache.SUFFIX):
        return None
    text = (cache.metadata(user_path(weights)) or {}).get(_KEY)
    return None if text is None else _parsed(text)


def require_name(description: Description, path: str) -> None:
    """Refuse a description that names a file with code, or another model to be loaded: weights are data, and data
    chooses neither what is run nor what is downloaded.

    Raises:
        UserError: the sentence has the options that name it on the command line.
    """
    name = description.architecture
    if prefixed(name) is not None:
        raise UserError(
            f"The weights {shortened(path)} are of {shortened(name)}, and weights must not choose what is downloaded; "
            f"pass --model {shortened(name)} --weights {shortened(path)}."
        )
    if user_code.is_file(name):
        raise UserError(
            f"The weights {shortened(path)} were trained with {shortened(name)}, and weights must not choose which "
            f"code is run; if you trust that file, pass --model {quote(shortened(name))} --weights {shortened(path)}."
        )


def architecture_of(model: str) -> str:
    """The name that builds a model's network: the one in its description, or `model` itself."""
    description = read_description(model)
    return model if description is None else description.architecture


def _parsed(text: str) -> Description | None:
    """The description in a text; None if it is not as `save_model` writes it."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, dict) or not entries.keys() >= {*Description._fields}:
        return None
    architecture, name, classes, mean, std = (entries[key] for key in Description._fields)
    texts = all(isinstance(value, str) and 0 < len(value) <= _LETTERS for value in (architecture, name))
    count = type(classes) is int and 0 < classes <= limits.CLASSES
    if not texts or not count or not all(_is_statistic(value) for value in (mean, std)):
        return None
    return Description(architecture, shortened(name), classes, mean, std)


def _is_statistic(value: object) -> bool:
    """Whether a value is one finite number for each channel, or None."""
    if value is None:
        return True
    if not isinstance(value, list) or not 0 < len(value) <= _CHANNELS:
        return False
    return all(isinstance(each, float | int) and not isinstance(each, bool) and abs(each) < _LARGEST for each in value)


def check_replaceable(path: Path) -> None:
    """Check that a model may be written to `path`: there is no file, or one that `save_model` wrote.

    Raises:
        UserError: there is something else, such as weights of the user.
    """
    check_no_special_file(path)
    if path.exists() and _KEY not in (cache.metadata(path) or {}):
        raise UserError(f"{path} was not written by robustkit, so it is not replaced; give another --out, or move it.")


def training_notes(path: Path) -> list[str]:
    """What a training said about its result, from the header of its model file; empty if there is none."""
    try:
        notes = json.loads((cache.metadata(path) or {})[_KEY])["notes"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return []
    return notes if isinstance(notes, list) and all(isinstance(note, str) for note in notes) else []


def save_model(
    path: Path, model: PixelModel, architecture: str, name: str, more: Mapping[str, str | Sequence[str]]
) -> None:
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
    # Wrappers around the network are built again from its name.
    state: Mapping[str, Tensor] = network_in(model).state_dict()
    try:
        # One entry: safetensors writes several in a random order, and equal trainings must give equal bytes.
        cache.store(path, state, {_KEY: json.dumps({**more, **description._asdict()})})
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); give another --out.") from None
