"""The radius that a page leads with: the default one for the data, else the largest that was tried.

A page must not lead with the radius that flatters the models most, which is the smallest one.
"""

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from robustkit.data import DEFAULT_THREATS
from robustkit.data.dataset import UsualThreat
from robustkit.primitives.threat import norm_name, radius

from .board import Board
from .result_rows import ThreatLabel

_OWN: Final = ("digits",)  # whose radius is robustkit's choice; papers report none
# Papers write the L2 radius of CIFAR either way.
_ALSO: Final = {("cifar10", "L2"): "128/255", ("cifar100", "L2"): "128/255"}


class HeadlineThreat(NamedTuple):
    """The norm and radius of the headline, and the rule that chose them, as a sentence."""

    threat: ThreatLabel
    rule: str


def headline_threat(board: Board) -> HeadlineThreat | None:
    """The radius to lead with; None if no attack had a radius."""
    if not board.threats:
        return None
    data = board.images.dataset
    usual, word = list(_usual(data)), "default" if _key(data) in _OWN else "usual"
    for threat in board.threats:
        if any(one.norm == threat.norm and math.isclose(_radius(one), threat.eps) for one in usual):
            return HeadlineThreat(threat, f"{threat} is the {word} radius for {data}.")
    norm = board.threats[0].norm
    largest = max((threat for threat in board.threats if threat.norm == norm), key=lambda threat: threat.eps)
    only = len(board.threats) == 1
    known = next((one for one in usual if one.norm == norm), usual[0] if usual else None)
    about = f"the {word} one for {data} is {known.norm} {known.eps}" if known else f"none is usual for {data}"
    return HeadlineThreat(largest, f"{largest} is the {'only' if only else 'largest'} radius tried; {about}.")


def _radius(usual: UsualThreat) -> float:
    return radius(norm_name(usual.norm), usual.eps)


def _key(dataset: str) -> str:
    return re.sub(r"[^a-z0-9]", "", dataset.lower().partition(".")[0])


def _usual(dataset: str) -> Iterator[UsualThreat]:
    """The usual threats for data of this name; "CIFAR-10" and "cifar10.npz" are CIFAR-10."""
    name = _key(dataset)
    for one in DEFAULT_THREATS.get(name, ()):
        yield one
        if (name, one.norm) in _ALSO:
            yield UsualThreat(one.norm, _ALSO[name, one.norm])
