"""A training kept on disk: one safetensors file, written whole or not at all, from which it goes on bit for bit."""

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


def keep(path: Path, groups: Mapping[str, Mapping[str, Tensor]], notes: Mapping[str, Any]) -> None:
    """Write groups of tensors and plain notes.

    Raises:
        UserError: the folder cannot be written.
    """
    from safetensors.torch import save

    # Copies: safetensors refuses tensors that share their memory.
    flat = {f"{group}/{name}": value.detach().cpu().clone().contiguous()
            for group, values in groups.items() for name, value in values.items()}  # fmt: skip
    raw = save(flat, {_NOTES: json.dumps(dict(notes))})
    try:
        replace_file(path, raw)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); give another --out.") from None


def kept(path: Path) -> FileContent | None:
    """What the file holds; None where there is none. Halves of it that a killed process left are removed.

    Raises:
        UserError: the file is not one that `keep` wrote.
    """
    from safetensors import SafetensorError, safe_open

    for left in path.parent.glob(f".{path.name}.*{PART}"):
        # Of a process that was killed while it wrote.
        left.unlink(missing_ok=True)
    if not path.exists():
        return None
    groups: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt") as file:
            notes = json.loads((file.metadata() or {})[_NOTES])
            for key in file.keys():  # noqa: SIM118  # no mapping
                group, _, name = key.partition("/")
                groups.setdefault(group, {})[name] = file.get_tensor(key)
    except (OSError, SafetensorError, KeyError, ValueError):
        raise UserError(f"{path} is no training that was kept here; remove it, or give another --out.") from None
    return FileContent(groups, notes)


def flattened(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of an optimizer's state, by parameter and kind."""
    state = optimizer.state_dict()["state"]
    return {f"{number}.{kind}": value for number, entry in state.items() for kind, value in entry.items()
            if isinstance(value, Tensor)}  # fmt: skip


def restored(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer, fresh, the state that `flattened` took."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, kind = key.partition(".")
        state.setdefault(int(number), {})[kind] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
