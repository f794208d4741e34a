"""The paired differences between models as rows with an interval around zero, all on one scale."""

import math
from typing import Final, NamedTuple

from ..shared.words import p_value, point_range, points
from .overview import Overview
from .ranking import Pair
from .result_rows import ThreatLabel

_MOST: Final = 15  # rows; of more models only the pairs with the best one and of neighbours
_STEP: Final = 0.05  # the scale ends at a multiple of this


class PairRow(NamedTuple):
    """Two models; places are shares of the scale's width."""

    pair: Pair
    points: str
    interval: str
    p: str
    low: float
    high: float
    at: float


class PairTable(NamedTuple):
    """The rows, the end of the scale in points on both sides of zero, and how many pairs are left out."""

    threat: ThreatLabel
    rows: list[PairRow]
    reach: str
    left_out: int


def pair_table(table: Overview) -> PairTable | None:
    """The pairs of the ranked models; None where there are none."""
    ranked = table.ranked
    if ranked is None or not ranked.pairs:
        return None
    neighbours = set(zip(ranked.models, ranked.models[1:], strict=False))
    kept = ranked.pairs
    if len(kept) > _MOST:
        kept = [pair for pair in kept if pair.first == ranked.models[0] or (pair.first, pair.second) in neighbours]
    ends = [abs(end) for pair in kept for end in (pair.difference.low, pair.difference.high)]
    reach = min(1.0, max(_STEP, math.ceil(max(ends) / _STEP) * _STEP))
    return PairTable(ranked.threat, [_row(pair, reach) for pair in kept], points(reach), len(ranked.pairs) - len(kept))


def _row(pair: Pair, reach: float) -> PairRow:
    value, low, high = pair.difference
    places = ((each / reach + 1) / 2 for each in (low, high, value))
    return PairRow(pair, points(value), point_range(low, high), p_value(pair.p), *places)
