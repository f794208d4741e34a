"""Names of layers, shortened where many share a beginning: "model.backbone.layer1.0.conv1"."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

SHORT: Final = 8  # letters: to leave out a shorter prefix saves less than the sentence that says so


class LayerName(NamedTuple):
    """A name in two parts, for a table in the order of execution."""

    repeated: str  # also the beginning of the row above; shown pale
    own: str


def common_prefix(names: Sequence[str]) -> str:
    """What all names start with, up to a dot, such as "model.backbone."; empty if that is next to nothing."""
    prefix = _joined(_shared([name.split(".")[:-1] for name in names])) if len(names) > 1 else ""
    return prefix if len(prefix) >= SHORT else ""


def table_names(names: Sequence[str]) -> list[LayerName]:
    """Each name without the prefix of all, divided where it leaves the name before it."""
    start = len(common_prefix(names))
    short = [name[start:] for name in names]
    divided = [LayerName("", name) for name in short[:1]]
    for before, name in pairwise(short):
        repeated = _joined(_shared([before.split(".")[:-1], name.split(".")[:-1]]))
        divided.append(LayerName(repeated, name[len(repeated) :]))
    return divided


def _shared(names: Sequence[Sequence[str]]) -> list[str]:
    """The parts that all have at their beginning."""
    shared = []
    for parts in zip(*names, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return shared


def _joined(parts: Sequence[str]) -> str:
    return "".join(f"{part}." for part in parts)
