"""Checkpoint files: read without running any code in them, and loaded into a network or refused with the reason."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path

WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
AVERAGES = ("state_dict_ema", "model_ema")  # timm's and torchvision's, beside the weights that were trained
COMPILED = "_orig_mod"  # torch.compile's part, of the whole network or of a layer
PARALLEL = "module"  # DataParallel's part, and that of averages
SOMETIMES_STRIPPED = ("network.", "model.")  # ours, Lightning's: only if the network has no such part itself
_EXTRA = "_extra_state"  # of a module's own making: a tensor, or another plain value
# Training heads of GoogLeNet and Inception, which we do not build, and the counter of torch's AveragedModel.
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.", "n_averaged")
LISTED = 3  # names that an error lists


class ShapeMismatch(NamedTuple):
    """A weight that has one shape in the file and another in the network."""

    key: str
    in_file: list[int]
    in_network: list[int]


def is_checkpoint(weights: str | Path) -> bool:
    """Whether weights are those of a file, and not published ones called by name."""
    path = user_path(weights)
    return isinstance(weights, Path) or path.is_file() or bool(path.suffix) or len(path.parts) > 1


def read_state(path: Path) -> dict[str, Any]:
    """The state dict in a `.safetensors` or torch file, without the usual wrappers and prefixes.

    All values are tensors, but for what modules keep as `_extra_state`.

    Raises:
        UserError: the file is missing or broken, loading it could run code, or it has no state dict.
    """
    path = user_path(path)
    if not path.is_file():
        raise no_file(f"There is no checkpoint {shortened(path)}", path, "check the path given as --weights")
    if path.stat().st_size == 0:
        raise UserError(f"The checkpoint {shortened(path)} is empty; save or copy it again.")
    _require_readable(path)
    content = _read_safetensors(path) if path.suffix.lower() == ".safetensors" else _read_torch_file(path)
    return _state_dict(_unwrapped(content, path), path)


def load_file(network: nn.Module, weights: str | Path, name: str, *, adapts: bool = True) -> str:
    """`load_weights` from the file `weights`; returns what it adds to the description of the network.

    Raises:
        UserError: as `read_state` and `load_weights`.
    """
    path = user_path(weights)
    load_weights(network, read_state(path), path, name, adapts=adapts)
    return f", weights of {path.name}"


def load_weights(
    network: nn.Module, state: Mapping[str, Any], path: Path, name: str, *, adapts: bool = True
) -> None:  # fmt: skip
    """Load the weights into the network.

    Args:
        network: has the layers of the weights.
        state: as `read_state` returns it.
        path: of the weights, for messages.
        name: of the network, for messages.
        adapts: `--num-classes` changes the last layer.

    Raises:
        UserError: keys or shapes differ, or a weight is not finite; the message names the first few.
    """
    own = network.state_dict()
    expected = {_without_wrappers(key): value for key, value in own.items()}
    given = _without_prefix(state, expected)
    missing = [key for key in expected if key not in given and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in given if key not in expected and not key.startswith(AUXILIARY)]
    weights = [key for key in expected if key in given and not key.endswith(_EXTRA)]
    shapes = [
        ShapeMismatch(key, list(given[key].shape), list(expected[key].shape))
        for key in weights
        if not is_lazy(expected[key]) and given[key].shape != expected[key].shape  # lazy ones take any shape
    ]
    if missing or unexpected or shapes:
        raise UserError(_difference(path, name, missing, unexpected, shapes, adapts=adapts))
    for key in weights:
        require_usable(given[key], expected[key], f"The weight {shortened(key)} in {shortened(path)}")
    names = {key: _without_wrappers(key) for key in own}
    network.load_state_dict({key: given[name] for key, name in names.items() if name in given}, strict=False)


def require_usable(given: Tensor, expected: Tensor, what: str) -> None:
    """Refuse a weight that cannot stand for `expected`, which has the same shape; `what` names it.

    Raises:
        UserError: it is sparse, quantised, of another kind of numbers or not finite.
    """
    kind = (
        "is sparse" if given.layout != torch.strided
        else "is quantised" if given.is_quantized
        else "has no values (it was saved on the device meta)" if given.is_meta and not expected.is_meta
        else f"has the type {_dtype(given)}, the network has {_dtype(expected)}" if _differs(given, expected)
        else None
    )  # fmt: skip
    if kind is not None:
        raise UserError(f"{what} {kind}; save the plain weights of the network.")
    # torch does not compute with floats of 8 bits.
    values = given.float() if given.is_floating_point() and given.itemsize == 1 else given
    if not values.isfinite().all():
        raise UserError(f"{what} has NaN or infinity; take an earlier checkpoint.")


def _differs(given: Tensor, expected: Tensor) -> bool:
    """Whether a conversion would change more than the precision. Averages of checkpoints have floats as counters."""
    whole = not given.is_floating_point() and not given.is_complex()
    return given.is_complex() != expected.is_complex() or (whole and expected.is_floating_point())


def _dtype(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def _require_readable(path: Path) -> None:
    # safetensors calls a file that may not be read missing.
    try:
        path.open("rb").close()
    except OSError as error:
        raise UserError(
            f"The checkpoint {shortened(path)} cannot be read ({error.strerror}); check its permissions."
        ) from None


def _read_safetensors(path: Path) -> object:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:  # what safetensors raises for a file that is too large to map is no error of its own
        raise not_whole(path, "safetensors file", error) from error


def _read_torch_file(path: Path) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about pickle versions, for its own developers
            _refuse_packed(path)
            return torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)|class ([\w.]+)", str(error))
        if named is None:
            raise UserError(f"{shortened(path)} is not a whole checkpoint; save or copy it again.") from error
        raise UserError(
            f"{shortened(path)} contains Python objects ({shortened(named[1] or named[2])}), and loading those could "
            "run code; save the state dict instead: torch.save(model.state_dict(), path)."
        ) from error
    except Exception as error:  # a broken file makes torch raise almost anything
        raise not_whole(path, "checkpoint", error) from error


def _refuse_packed(path: Path) -> None:
    """Refuse compressed records: torch writes none, and a small file could fill the memory."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                raise UserError(
                    f"{shortened(path)} is a TorchScript file, which holds a network of its own; pass it as --model, "
                    "without --weights."
                )
            if any(info.file_size > info.compress_size for info in archive.infolist()):
                raise UserError(f"{shortened(path)} is a compressed archive, not a file of torch; unpack it first.")


def not_whole(path: Path, kind: str, error: Exception) -> UserError:
    """The error for a broken file."""
    message = "" if isinstance(error, KeyError) else str(error).split("\n")[0]
    reason = shortened(message or type(error).__name__)
    return UserError(f"{shortened(path)} is not a whole {kind} ({reason}); save or copy it again.")


def _unwrapped(content: object, path: Path) -> object:
    seen = set[int]()
    while isinstance(content, Mapping):
        # torch files can hold a dict that contains itself.
        if id(content) in seen:
            raise UserError(f"{shortened(path)} has no state dict (a dict that contains itself); save one.")
        seen.add(id(content))
        found = [key for key in (*WRAPPERS, *AVERAGES) if isinstance(content.get(key), Mapping)]
        if not found:
            break
        if len(found) > 1 and found[-1] in AVERAGES:
            raise UserError(
                f"{shortened(path)} has two sets of weights, {found[0]} and the averaged {found[-1]}; save the one "
                f"that you mean in a file of its own: torch.save(torch.load(FILE)[{found[-1]!r}], OTHER)."
            )
        content = content[found[0]]
    return content


def _state_dict(content: object, path: Path) -> dict[str, Any]:
    entries = content if isinstance(content, Mapping) else {}
    state = {k: v for k, v in entries.items() if isinstance(v, Tensor) or str(k).endswith(_EXTRA)}
    if not any(isinstance(value, Tensor) for value in state.values()) or not all(isinstance(key, str) for key in state):
        kind = f"keys {_listed(content)}" if isinstance(content, Mapping) else type(content).__name__
        raise UserError(
            f"{shortened(path)} has no state dict ({kind}); save one: torch.save(model.state_dict(), path)."
        )
    for key, value in state.items():
        if isinstance(value, Tensor) and value.is_nested:  # torch raises at its shape, which is compared first
            raise UserError(
                f"The weight {shortened(key)} in {shortened(path)} is a nested tensor; "
                "save the plain weights of the network."
            )
    plain: dict[str, Any] = {}
    given_as: dict[str, str] = {}
    for key, value in state.items():
        name = _without_wrappers(key)
        if name in plain:
            raise UserError(
                f"{shortened(path)} has one weight twice, as {shortened(given_as[name])} and as {shortened(key)}; save "
                "the weights of one network alone."
            )
        plain[name], given_as[name] = value, key
    return plain


def _without_wrappers(key: str) -> str:
    """The name that a weight has in a network which is neither compiled nor parallel."""
    parts = [part for part in key.split(".") if part != COMPILED] or [key]
    first = 1 if f"{parts[0]}." in SOMETIMES_STRIPPED else 0
    while parts[first : first + 1] == [PARALLEL]:
        del parts[first]
    return ".".join(parts)


def _without_prefix(state: Mapping[str, Any], expected: Mapping[str, Any]) -> Mapping[str, Any]:
    for prefix in SOMETIMES_STRIPPED:
        if all(key.startswith(prefix) for key in state) and not any(key.startswith(prefix) for key in expected):
            return {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def _difference(
    path: Path, name: str, missing: list[str], unexpected: list[str], shapes: list[ShapeMismatch], *, adapts: bool
) -> str:
    parts = [f"missing {_listed(missing)}"] if missing else []
    parts += [f"unexpected {_listed(unexpected)}"] if unexpected else []
    parts += [_listed(f"{key} is {in_file}, not {in_network}" for key, in_file, in_network in shapes)] if shapes else []
    classes = None if missing or unexpected else _other_class_count(shapes)
    of_timm = "" if missing or unexpected else _arguments_of_timm(name, shapes)
    fix = (
        f"build it as it was trained, {of_timm}, in a function of yours: --model FILE.py:FUNCTION" if of_timm
        else "name the architecture that it is of as the model, or save it again whole" if not classes
        else f"pass --num-classes {classes}" if adapts
        else f"name a model with {classes} classes"
    )  # fmt: skip
    return f"{shortened(path)} does not fit {name}: {'; '.join(parts)}; {fix}."


def _other_class_count(shapes: list[ShapeMismatch]) -> int | None:
    """The number of classes in the file, if only the first axis of the last layer differs; else None."""
    first_axes = {(a[0], b[0]) for _, a, b in shapes if a[1:] == b[1:] and a and b}
    layers = {key.rpartition(".")[0] for key, _, _ in shapes}
    only_first_axis = all(a[1:] == b[1:] for _, a, b in shapes)
    return first_axes.pop()[0] if only_first_axis and len(first_axes) == len(layers) == 1 else None


def _arguments_of_timm(name: str, shapes: list[ShapeMismatch]) -> str:
    """How a network of timm was built, if only arguments about its images differ; else nothing."""
    library, _, architecture = name.partition(":")
    arguments = {_argument_of_timm(*each): None for each in shapes}
    if library != "timm" or None in arguments:
        return ""
    return f"timm.create_model({', '.join([repr(architecture), 'num_classes=...', *map(str, arguments)])})"


def _argument_of_timm(key: str, in_file: list[int], in_network: list[int]) -> str | None:
    """The argument that decides the shape of a weight; None for others than those about images."""
    if "pos_embed" in key and in_file[-1:] == in_network[-1:]:
        return "img_size=..."
    other_channels = len(in_file) == len(in_network) == 4 and in_file == [in_network[0], in_file[1], *in_network[2:]]
    return f"in_chans={in_file[1]}" if other_channels else None


def _listed(names: Iterable[object]) -> str:
    listed = list(names)
    more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    return ", ".join(shortened(name) for name in listed[:LISTED]) + more
