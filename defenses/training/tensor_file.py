"""Write and read groups of tensors with plain notes, as one safetensors file that is either complete or absent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.host.files import PART, replace_file

_NOTES = "notes"


class FileContent(NamedTuple):
    """What a file holds: groups of tensors by name, and plain notes."""

    groups: dict[str, dict[str, Tensor]]
    notes: dict[str, Any]


def write_tensors(path: Path, groups: Mapping[str, Mapping[str, Tensor]], notes: Mapping[str, Any]) -> None:
    """Write groups of tensors and plain notes.

    Raises:
        UserError: the folder cannot be written to.
    """
    from safetensors.torch import save

    # Copies: safetensors refuses tensors that share memory.
    flat = {f"{group}/{name}": value.detach().cpu().clone().contiguous()
            for group, values in groups.items() for name, value in values.items()}  # fmt: skip
    raw = save(flat, {_NOTES: json.dumps(dict(notes))})
    try:
        replace_file(path, [raw])
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); give another --out.") from None


def read_tensors(path: Path) -> FileContent | None:
    """The content of a file, None if there is none; partly written files of a killed process are deleted.

    Raises:
        UserError: `write_tensors` did not write the file.
    """
    from safetensors import SafetensorError, safe_open

    for unfinished in path.parent.glob(f".{path.name}.*{PART}"):
        unfinished.unlink(missing_ok=True)
    if not path.exists():
        return None
    groups: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt") as file:
            notes = dict(json.loads((file.metadata() or {})[_NOTES]))
            for key in file.keys():  # noqa: SIM118  # no mapping
                group, _, name = key.partition("/")
                groups.setdefault(group, {})[name] = file.get_tensor(key)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError):
        raise UserError(f"{path} is not a complete training checkpoint; remove it, or give another --out.") from None
    return FileContent(groups, notes)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of an optimizer's state, named by parameter number and kind."""
    state = optimizer.state_dict()["state"]
    return {f"{number}.{kind}": value for number, entry in state.items() for kind, value in entry.items()
            if isinstance(value, Tensor)}  # fmt: skip


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give a new optimizer the state that `optimizer_tensors` returned.

    Raises:
        ValueError, RuntimeError: it is of other weights.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, kind = key.partition(".")
        state.setdefault(int(number), {})[kind] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for parameter, entry in optimizer.state.items():
        if any(value.dim() and value.shape != parameter.shape for value in entry.values() if isinstance(value, Tensor)):
            raise ValueError("a tensor of the optimizer has another shape than its weight")
