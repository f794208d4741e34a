"""Which layers a trace follows, and which it cannot see."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from robustkit.nethook import select, unwrap

from .passes import Key, Runner, Shape, probe, tile_size
from .points import Pairs

Layers = str | Sequence[str]


class Followed(NamedTuple):
    """The calls to follow, with the shape of one image's output, and why other layers are not followed."""

    shapes: Mapping[Key, Shape]
    unseen: Mapping[str, str]

    @property
    def layers(self) -> list[str]:
        """Each layer once, in the order of its first call."""
        return list(dict.fromkeys(key.layer for key in self.shapes))

    @property
    def tile(self) -> int:
        """How many images may go through at once."""
        return tile_size(sum(torch.Size(shape).numel() for shape in self.shapes.values()))


def followed(runner: Runner, pairs: Pairs, layers: Layers | None) -> Followed:
    """The calls of the layers asked for, or of all that have no other module running inside them, found in one pass.

    Raises:
        LayerNotFoundError: a name or pattern fits no layer.
        UnfiredLayerError: a layer that was asked for never runs.
    """
    network = unwrap(runner.classifier.network)
    if layers is not None:
        return _sorted_out(runner.ran(list(select(network, layers)), probe(pairs.x), strict=True), {})
    everything = executed(runner, pairs)
    ran = {key.layer for key in everything}
    outer = {name for name in ran for other in ran if _inside(other, name)}
    leaves = {key: shape for key, shape in everything.items() if key.layer not in outer}
    return _sorted_out(leaves, dict(_silent(network, {key.layer for key in leaves})))


def executed(runner: Runner, pairs: Pairs) -> dict[Key, Shape | None]:
    """All calls of all modules in the order in which they end, with the shape of one image's output if it has one."""
    names = [name for name, _ in unwrap(runner.classifier.network).named_modules()]
    return runner.ran(names, probe(pairs.x), strict=False)


def _sorted_out(calls: Mapping[Key, Shape | None], unseen: Mapping[str, str]) -> Followed:
    blind = {key.layer: "its output is no tensor of numbers with one row per image"
             for key, shape in calls.items() if shape is None}  # fmt: skip
    return Followed({key: shape for key, shape in calls.items() if shape is not None}, {**unseen, **blind})


def _silent(network: nn.Module, leaves: set[str]) -> Iterator[tuple[str, str]]:
    """Modules without children whose call no hook saw, and why."""
    for name, module in network.named_modules():
        if name not in leaves and not list(module.children()):
            whole = [leaf for leaf in leaves if _inside(name, leaf)]
            yield name, f"its work is done within {whole[0]}" if whole else "it never ran"


def _inside(name: str, outer: str) -> bool:
    return name != outer and (outer == "" or name.startswith(f"{outer}."))
