"""What follows from the rows per image: images that only one attack broke, and the accuracy of each class."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustkit.checks.image_set import ImageSet
from robustkit.statistics.intervals import Proportion, proportion

from ..shared.words import interval, percent
from .board import Board
from .result_rows import OrderedRow, ThreatLabel


class Share(NamedTuple):
    """k of n images with the interval of k / n."""

    k: int
    n: int
    at: Proportion

    @property
    def percent(self) -> str:
        """The share as text."""
        return percent(self.k, self.n)

    @property
    def interval(self) -> str:
        """Its 95 % interval as text."""
        return interval(self.at.low, self.at.high, self.k, self.n)


class ClassRow(NamedTuple):
    """One class of a model: its accuracy without an attack, and the worst case for each threat (None: not run)."""

    name: str
    clean: Share
    worst: list[Share | None]


def broken_only_by(board: Board, model: str, threat: ThreatLabel) -> dict[str, int]:
    """For each attack the number of images that no other attack broke; attacks without rows per image are left out.

    A member of an ensemble attacks only what earlier members left, so its own ensemble does not count as another
    attack.
    """
    rows = board.attack_rows(model, threat)
    by_attack = {attack: ImageSet(images) for attack, images in board.verdicts.broken_by(model, threat).items()}
    members: dict[str, set[str]] = {}
    for row in rows:
        if row.ensemble:
            members.setdefault(row.ensemble, set()).add(row.cell.attack)
    broken: dict[str, ImageSet] = {}
    for row in rows:
        own = [row.cell.attack, *sorted(members.get(row.cell.attack, ()))]
        if any(name in by_attack for name in own) or row.cell.broken == 0:
            broken[row.cell.attack] = ImageSet.union(by_attack[name] for name in own if name in by_attack)
    return {row.cell.attack: _broken_alone(row, rows, broken) for row in rows if row.cell.attack in broken}


def _broken_alone(row: OrderedRow, rows: list[OrderedRow], broken: dict[str, ImageSet]) -> int:
    """How many images the attack of `row` broke and no other attack."""
    own = {row.cell.attack, row.ensemble}
    # To other attacks an ensemble is one attack. To a member, the other members are attacks and the ensemble is not.
    others = [other for other in rows if other.cell.attack not in own and (row.ensemble or not other.ensemble)]
    by_others = ImageSet.union(broken[other.cell.attack] for other in others if other.cell.attack in broken)
    return len(broken[row.cell.attack] - by_others)


def class_rows(board: Board, model: str) -> list[ClassRow]:
    """The classes of a model by number; an image counts as robust if no attack broke it."""
    images = board.verdicts.images(model)
    label, correct = images.label, images.correct
    robust = [board.verdicts.robust(model, threat) for threat in board.threats]
    was_run = [bool(board.verdicts.parts(model, threat)) for threat in board.threats]
    rows = []
    for number in sorted(set(label.tolist())):
        here = label == number
        worst = [_share(each[here]) if ran else None for each, ran in zip(robust, was_run, strict=True)]
        rows.append(ClassRow(board.class_name(int(number)), _share(correct[here]), worst))
    return rows


def _share(correct: NDArray[np.bool_]) -> Share:
    k, n = int(correct.sum()), len(correct)
    return Share(k, n, proportion(k, n))
