"""Which layer calls a trace follows, and which layers hooks cannot see."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from robustkit.nethook import select, unwrap

from .passes import Key, Runner, Shape, shape_probe, tile_size
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
        """Number of images in one pass."""
        return tile_size(sum(torch.Size(shape).numel() for shape in self.shapes.values()))


def followed(runner: Runner, pairs: Pairs, layers: Layers | None) -> Followed:
    """The calls of the chosen layers, or of all layers inside which no other module runs, found by one pass.

    Raises:
        LayerNotFoundError: a name or pattern matches no layer.
        UnfiredLayerError: a chosen layer never runs.
    """
    network = unwrap(runner.classifier.network)
    if layers is not None:
        return _with_shapes(runner.ran(list(select(network, layers)), shape_probe(pairs.x), strict=True), {})
    everything = executed(runner, pairs)
    ran = {key.layer for key in everything}
    outer = {name for name in ran for other in ran if _inside(other, name)}
    leaves = {key: shape for key, shape in everything.items() if key.layer not in outer}
    return _with_shapes(leaves, dict(_silent(network, {key.layer for key in leaves})))


def executed(runner: Runner, pairs: Pairs) -> dict[Key, Shape | None]:
    """All calls of all layers in the order in which they end, with the output's shape for one image, if it has one."""
    # A parametrization, as of spectral_norm, is run by a layer and computes its weight.
    layers = unwrap(runner.classifier.network).named_modules()
    names = [name for name, _ in layers if "parametrizations" not in name.split(".")]
    return runner.ran(names, shape_probe(pairs.x), strict=False)


def _with_shapes(calls: Mapping[Key, Shape | None], unseen: Mapping[str, str]) -> Followed:
    shapeless = {key.layer: "its output is not a tensor of numbers with one row per image"
                 for key, shape in calls.items() if shape is None}  # fmt: skip
    return Followed({key: shape for key, shape in calls.items() if shape is not None}, {**unseen, **shapeless})


def _silent(network: nn.Module, leaves: set[str]) -> Iterator[tuple[str, str]]:
    """Modules without children whose calls are not followed, and why."""
    for name, module in network.named_modules():
        if name not in leaves and not list(module.children()):
            around = [leaf for leaf in leaves if _inside(name, leaf)]
            yield name, f"its work is done within {around[0]}" if around else "it never ran"


def _inside(name: str, outer: str) -> bool:
    return name != outer and (outer == "" or name.startswith(f"{outer}."))
