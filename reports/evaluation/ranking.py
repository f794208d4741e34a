"""The models of a board in the order of their accuracy at one threat, and which of them can be told apart.

Pairs are tested on the same images: McNemar's exact test, with Holm's correction for all pairs at the threat.
"""

from itertools import combinations
from typing import Final, NamedTuple

from robustkit.statistics.paired import PairedDifference, holm, mcnemar, paired_counts, paired_difference

from ..shared.words import DASH
from .board import Board
from .result_rows import ThreatLabel

LEVEL: Final = 0.05
MOST: Final = 40  # models whose pairs are tested


class Pair(NamedTuple):
    """Two models on the same images, the one with the higher accuracy first."""

    first: str
    second: str
    first_only: int  # images that only the first one gets right
    second_only: int
    difference: PairedDifference  # of the accuracies
    p: float  # corrected for the number of pairs

    @property
    def told_apart(self) -> bool:
        """Whether the test sees a difference."""
        return self.p < LEVEL


class Ranking(NamedTuple):
    """Models at one threat, the highest accuracy first, and their pairs in that order."""

    threat: ThreatLabel
    models: list[str]
    pairs: list[Pair]

    def place(self, model: str) -> str:
        """The places that a model may have: "2", or "1-3" where it cannot be told apart from others."""
        if model not in self.models or not self.pairs:
            return ""
        above = sum(pair.second == model and pair.told_apart for pair in self.pairs)
        below = sum(pair.first == model and pair.told_apart for pair in self.pairs)
        first, last = 1 + above, len(self.models) - below
        return f"{first}" if first == last else f"{first}{DASH}{last}"

    def pair(self, first: str, second: str) -> Pair:
        """The pair of these two models, the better one first."""
        return next(pair for pair in self.pairs if (pair.first, pair.second) == (first, second))


def ranking(board: Board, threat: ThreatLabel) -> Ranking:
    """The models that were attacked at a threat; there are no pairs where a run is unfinished."""
    rows = {model: row for model in board.models if (row := board.worst(model, threat))}
    models = sorted(rows, key=lambda model: -rows[model].correct / max(1, rows[model].n))
    settled = not board.unfinished and len(models) <= MOST and board.images.n > 0
    return Ranking(threat, models, _pairs(board, models, threat) if settled else [])


def _pairs(board: Board, models: list[str], threat: ThreatLabel) -> list[Pair]:
    robust = {model: board.verdicts.robust(model, threat) for model in models}
    if len({len(each) for each in robust.values()}) > 1:
        return []
    tests = [(first, second, paired_counts(robust[first], robust[second])) for first, second in combinations(models, 2)]
    p_values = holm([mcnemar(counts) for _, _, counts in tests])
    return [
        Pair(first, second, counts.first_only, counts.second_only, paired_difference(counts), p)
        for (first, second, counts), p in zip(tests, p_values, strict=True)
    ]
