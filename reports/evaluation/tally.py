"""What only the rows per image can tell: which images an attack alone broke, and how each class fares."""

from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustkit.statistics.intervals import Proportion, proportion

from ..shared.words import interval, percent, printable
from .board import Board
from .cells import Placed, ThreatLabel


class Share(NamedTuple):
    """k of n images with the interval of k / n."""

    k: int
    n: int
    at: Proportion

    @property
    def percent(self) -> str:
        """The share in words."""
        return percent(self.k, self.n)

    @property
    def interval(self) -> str:
        """Its 95 % interval in words."""
        return interval(self.at.low, self.at.high, self.k, self.n)


class ClassRow(NamedTuple):
    """One class of a model: its accuracy without an attack, and the worst case for each threat (None: not run)."""

    name: str
    clean: Share
    worst: list[Share | None]


def broken_only_by(board: Board, model: str, threat: ThreatLabel) -> dict[str, int]:
    """For each attack the images that no other attack broke; attacks without evidence per image are left out.

    A member of an ensemble never sees what earlier members broke, so its own ensemble does not count as another.
    """
    rows = board.placed(model, threat)
    found = _witnesses(board.samples, model, threat)
    members: dict[str, set[str]] = {}
    for row in rows:
        if row.ensemble:
            members.setdefault(row.ensemble, set()).add(row.cell.attack)
    broke: dict[str, AbstractSet[int]] = {}
    for row in rows:
        own = [row.cell.attack, *sorted(members.get(row.cell.attack, ()))]
        if any(name in found for name in own) or row.cell.broken == 0:
            broke[row.cell.attack] = frozenset().union(*(found.get(name, ()) for name in own))
    return {row.cell.attack: _alone(row, rows, broke) for row in rows if row.cell.attack in broke}


def _alone(row: Placed, rows: list[Placed], broke: dict[str, AbstractSet[int]]) -> int:
    """How many images fell to the attack of `row` and to no other."""
    own = {row.cell.attack, row.ensemble}
    # Seen from outside an ensemble is one attack; seen by a member its siblings are others and the whole is not.
    others = [other for other in rows if other.cell.attack not in own and (row.ensemble or not other.ensemble)]
    taken = frozenset[int]().union(*(broke.get(other.cell.attack, ()) for other in others))
    return len(broke[row.cell.attack] - taken)


def _witnesses(samples: pd.DataFrame, model: str, threat: ThreatLabel) -> dict[str, set[int]]:
    """For each attack with rows in `samples` the images it broke."""
    here = samples[_at(samples, model, threat)]
    found: dict[str, set[int]] = {printable(str(attack)): set() for attack in here["attack"].unique()}
    broken = here[here["verdict"] == "broken"]
    for attack, sample in zip(broken["attack"], broken["sample"], strict=True):
        found[printable(str(attack))].add(int(sample))
    return found


def class_rows(board: Board, model: str) -> list[ClassRow]:
    """The model's classes in the order of their numbers, over the minimum over attacks for each image."""
    samples = board.samples
    own = samples[samples["model"] == model].drop_duplicates("sample")
    label, right = own["label"].to_numpy(), (own["label"] == own["clean_pred"]).to_numpy()
    robust = [_robust(samples, model, threat, own["sample"]) & right for threat in board.threats]
    ran = [bool(_at(samples, model, threat).any()) for threat in board.threats]
    rows = []
    for number in sorted(set(label.tolist())):
        here = label == number
        worst = [_share(kept[here]) if known else None for kept, known in zip(robust, ran, strict=True)]
        rows.append(ClassRow(board.class_name(int(number)), _share(right[here]), worst))
    return rows


def _robust(samples: pd.DataFrame, model: str, threat: ThreatLabel, images: "pd.Series[int]") -> NDArray[np.bool_]:
    here = samples[_at(samples, model, threat)]
    return ~np.isin(images.to_numpy(), here.loc[here["verdict"] == "broken", "sample"].to_numpy())


def _share(kept: NDArray[np.bool_]) -> Share:
    k, n = int(kept.sum()), len(kept)
    return Share(k, n, proportion(k, n))


def _at(samples: pd.DataFrame, model: str, threat: ThreatLabel) -> "pd.Series[bool]":
    return (samples["model"] == model) & (samples["norm"] == threat.norm) & (samples["eps_text"] == threat.eps_text)
