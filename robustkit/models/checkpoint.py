"""Checkpoint files: read without running any code in them, and loaded into a network or refused with the reason."""

import pickle
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.errors import UserError, no_file
from robustkit.host.files import is_file

WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
ALWAYS_STRIPPED = ("module.", "_orig_mod.")  # DataParallel, torch.compile
SOMETIMES_STRIPPED = ("network.", "model.")  # ours, Lightning's: only if the network has no such part itself
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")  # GoogLeNet's and Inception's training heads, which we do not build
LISTED = 3  # names that an error lists


class ShapeMismatch(NamedTuple):
    """A weight that has one shape in the file and another in the network."""

    key: str
    in_file: list[int]
    in_network: list[int]


def read_state(path: Path) -> dict[str, Tensor]:
    """The state dict in a `.safetensors` or torch file, without the usual wrappers and prefixes.

    Raises:
        UserError: the file is missing or broken, loading it could run code, or it has no state dict.
    """
    if not is_file(path):
        raise no_file(f"There is no checkpoint {path}", path, "check the path given as --weights")
    if path.stat().st_size == 0:
        raise UserError(f"The checkpoint {path} is empty; save or copy it again.")
    content = _read_safetensors(path) if path.suffix.lower() == ".safetensors" else _read_torch_file(path)
    return _state_dict(_unwrapped(content), path)


def load_weights(network: nn.Module, state: Mapping[str, Tensor], path: Path, name: str) -> None:
    """Load the weights into the network; `path` and `name` are for error messages.

    Raises:
        UserError: keys or shapes differ, or a weight is not finite; the message names the first few.
    """
    expected = network.state_dict()
    given = _without_wrapper(state, expected)
    missing = [key for key in expected if key not in given and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in given if key not in expected and not key.startswith(AUXILIARY)]
    shapes = [
        ShapeMismatch(key, list(given[key].shape), list(expected[key].shape))
        for key in expected
        if key in given and given[key].shape != expected[key].shape
    ]
    if missing or unexpected or shapes:
        raise UserError(_difference(path, name, missing, unexpected, shapes))
    broken = [key for key in expected if key in given and not given[key].isfinite().all()]
    if broken:
        raise UserError(f"The weight {broken[0]} in {path} has NaN or infinity; take an earlier checkpoint.")
    network.load_state_dict({key: given[key] for key in expected if key in given}, strict=False)


def _read_safetensors(path: Path) -> object:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is not a whole safetensors file ({error}); save or copy it again.") from error


def _read_torch_file(path: Path) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about pickle versions, for its own developers
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)|class ([\w.]+)", str(error))
        if named is None:
            raise UserError(f"{path} is not a whole checkpoint; save or copy it again.") from error
        raise UserError(
            f"{path} contains Python objects ({named[1] or named[2]}), and loading those could run code; "
            "save the state dict instead: torch.save(model.state_dict(), path)."
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        message = "" if isinstance(error, KeyError) else str(error).split("\n")[0]
        reason = message or type(error).__name__
        raise UserError(f"{path} is not a whole checkpoint ({reason}); save or copy it again.") from error


def _unwrapped(content: object) -> object:
    while isinstance(content, Mapping):
        inner = next((content[key] for key in WRAPPERS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    return content


def _state_dict(content: object, path: Path) -> dict[str, Tensor]:
    state = {k: v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not state or not all(isinstance(key, str) for key in state):
        kind = f"keys {_listed(map(str, content))}" if isinstance(content, Mapping) else type(content).__name__
        raise UserError(f"{path} has no state dict ({kind}); save one: torch.save(model.state_dict(), path).")
    return {_without_prefix(key): value for key, value in state.items()}


def _without_prefix(key: str) -> str:
    while key.startswith(ALWAYS_STRIPPED):
        key = key.partition(".")[2]
    return key


def _without_wrapper(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    for prefix in SOMETIMES_STRIPPED:
        if all(key.startswith(prefix) for key in state) and not any(key.startswith(prefix) for key in expected):
            return {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def _difference(path: Path, name: str, missing: list[str], unexpected: list[str], shapes: list[ShapeMismatch]) -> str:
    parts = [f"missing {_listed(missing)}"] if missing else []
    parts += [f"unexpected {_listed(unexpected)}"] if unexpected else []
    parts += [_listed(f"{key} is {in_file}, not {in_network}" for key, in_file, in_network in shapes)] if shapes else []
    classes = None if missing or unexpected else _other_class_count(shapes)
    fix = f"pass --num-classes {classes}" if classes else "it is of another architecture: name that one as the model"
    return f"{path} does not fit {name}: {'; '.join(parts)}; {fix}."


def _other_class_count(shapes: list[ShapeMismatch]) -> int | None:
    """The number of classes in the file, if only the first axis of the last layer differs; else None."""
    first_axes = {(a[0], b[0]) for _, a, b in shapes if a[1:] == b[1:] and a and b}
    layers = {key.rpartition(".")[0] for key, _, _ in shapes}
    only_first_axis = all(a[1:] == b[1:] for _, a, b in shapes)
    return first_axes.pop()[0] if only_first_axis and len(first_axes) == len(layers) == 1 else None


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    return ", ".join(listed[:LISTED]) + more
