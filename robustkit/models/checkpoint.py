"""State dicts from files of other people: read without running their code, and fitted or refused with the reason."""

import pickle
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.errors import UserError

WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
ALWAYS_STRIPPED = ("module.", "_orig_mod.")  # DataParallel, torch.compile
SOMETIMES_STRIPPED = ("network.", "model.")  # ours, Lightning's: only where the network has no such part itself
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")  # GoogLeNet's and Inception's training heads, which we do not build
SHOWN = 3


class Mismatch(NamedTuple):
    """A weight that has one shape in the file and another in the network."""

    key: str
    found: list[int]
    wanted: list[int]


def read_state(path: Path) -> dict[str, Tensor]:
    """The state dict in a `.safetensors` or torch file, out of its usual wrappers and prefixes.

    Raises:
        UserError: there is no such file, it is broken, it would have to run code, or holds no state dict.
    """
    if not path.is_file():
        raise UserError(f"There is no checkpoint {path}; check the path given as --weights.")
    if path.stat().st_size == 0:
        raise UserError(f"The checkpoint {path} is empty; save or copy it again.")
    content = _safetensors(path) if path.suffix.lower() == ".safetensors" else _torch_file(path)
    return _plain(_unwrapped(content), path)


def fit(network: nn.Module, state: Mapping[str, Tensor], path: Path, name: str) -> None:
    """Put the weights into the network.

    Raises:
        UserError: keys or shapes differ, or a weight is not finite; the sentence names the first few.
    """
    wanted = network.state_dict()
    found = _without_wrapper(state, wanted)
    missing = [key for key in wanted if key not in found and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in found if key not in wanted and not key.startswith(AUXILIARY)]
    shapes = [
        Mismatch(key, list(found[key].shape), list(wanted[key].shape))
        for key in wanted
        if key in found and found[key].shape != wanted[key].shape
    ]
    if missing or unexpected or shapes:
        raise UserError(_difference(path, name, missing, unexpected, shapes))
    broken = [key for key in wanted if key in found and not found[key].isfinite().all()]
    if broken:
        raise UserError(f"The weight {broken[0]} in {path} holds NaN or infinity; take an earlier checkpoint.")
    network.load_state_dict({key: found[key] for key in wanted if key in found}, strict=False)


def _safetensors(path: Path) -> object:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is not a whole safetensors file ({error}); save or copy it again.") from error


def _torch_file(path: Path) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's doubts about pickle versions, in words for its developers
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)|class ([\w.]+)", str(error))
        if named is None:
            raise UserError(f"{path} is not a whole checkpoint; save or copy it again.") from error
        raise UserError(
            f"{path} holds Python objects ({named[1] or named[2]}), and loading those could run code; save the state "
            "dict instead: torch.save(model.state_dict(), path)."
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        told = not isinstance(error, KeyError) and str(error).split("\n")[0]
        reason = told or type(error).__name__
        raise UserError(f"{path} is not a whole checkpoint ({reason}); save or copy it again.") from error


def _unwrapped(content: object) -> object:
    while isinstance(content, Mapping):
        inner = next((content[key] for key in WRAPPERS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    return content


def _plain(content: object, path: Path) -> dict[str, Tensor]:
    state = {k: v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not state or not all(isinstance(key, str) for key in state):
        held = f"keys {_listed(map(str, content))}" if isinstance(content, Mapping) else type(content).__name__
        raise UserError(f"{path} holds no state dict ({held}); save one: torch.save(model.state_dict(), path).")
    return {_stripped(key): value for key, value in state.items()}


def _stripped(key: str) -> str:
    while key.startswith(ALWAYS_STRIPPED):
        key = key.partition(".")[2]
    return key


def _without_wrapper(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    for prefix in SOMETIMES_STRIPPED:
        if all(key.startswith(prefix) for key in state) and not any(key.startswith(prefix) for key in wanted):
            return {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def _difference(path: Path, name: str, missing: list[str], unexpected: list[str], shapes: list[Mismatch]) -> str:
    parts = [f"missing {_listed(missing)}"] if missing else []
    parts += [f"unexpected {_listed(unexpected)}"] if unexpected else []
    parts += [_listed(f"{key} is {found}, not {wanted}" for key, found, wanted in shapes)] if shapes else []
    classes = None if missing or unexpected else _other_class_count(shapes)
    fix = f"pass --num-classes {classes}" if classes else "it is of another architecture: name that one as the model"
    return f"{path} does not fit {name}: {'; '.join(parts)}; {fix}."


def _other_class_count(shapes: list[Mismatch]) -> int | None:
    """The class count of the file, where nothing but the last layer's first axis differs."""
    counts = {(found[0], wanted[0]) for _, found, wanted in shapes if found[1:] == wanted[1:] and found and wanted}
    layers = {key.rpartition(".")[0] for key, _, _ in shapes}
    same = all(found[1:] == wanted[1:] for _, found, wanted in shapes)
    return counts.pop()[0] if same and len(counts) == len(layers) == 1 else None


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
