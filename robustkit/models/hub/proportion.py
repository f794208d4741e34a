"""Whether a configuration asks for a network of about the size of its weights: another one could fill the memory."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import torch

from robustkit.errors import UserError
from robustkit.limits import shortened, shown

from .folders import HubFolder

_LAYERS = re.compile(r"layer|depth|block|stage")  # in the names of settings that count parts of a network
_MORE = 1.5  # times the stored values that a network may have: some share weights, which are stored once


class StoredWeights(NamedTuple):
    """How much the safetensors of a folder hold."""

    tensors: int
    values: int


def require_proportionate(loader: Any, library: Any, folder: HubFolder, where: str) -> None:
    """Refuse a configuration that asks for far more layers or weights than are stored; nothing is allocated.

    Raises:
        UserError: it does.
    """
    stored = _stored(folder.path)
    layers = max(_counts(folder.config), default=0)
    if layers > stored.tensors:
        raise UserError(
            f"The config.json of {shortened(where)} asks for {shown(layers)} layers, and there are {stored.tensors} "
            "weights; copy the folder again."
        )
    config = library.AutoConfig.from_pretrained(folder.path, trust_remote_code=False, local_files_only=True)
    with torch.device("meta"):
        network = loader.from_config(config, trust_remote_code=False)
    values = sum(weight.numel() for weight in network.state_dict().values())
    if values > _MORE * stored.values:
        raise UserError(
            f"The config.json of {shortened(where)} asks for a network with {values:,} weights, and {stored.values:,} "
            "are stored; copy the folder again."
        )


def _stored(folder: Path) -> StoredWeights:
    from safetensors import safe_open

    tensors = values = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (it is no mapping)
                tensors += 1
                values += torch.Size(weights.get_slice(name).get_shape()).numel()
    return StoredWeights(tensors, values)


def _counts(config: dict[str, Any]) -> list[int]:
    """The numbers of layers that a configuration names, at any depth."""
    counts: list[int] = []
    waiting: list[tuple[object, bool]] = [(config, False)]
    while waiting:
        value, named = waiting.pop()
        if isinstance(value, dict):
            waiting += [(each, _LAYERS.search(key) is not None) for key, each in value.items()]
        elif isinstance(value, list):
            waiting += [(each, named) for each in value]
        elif named and type(value) is int:
            counts.append(value)
    return counts
