"""The frame `Run.results` as typed rows, and the order in which attacks are read."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from robustkit.evidence.corruptions import ROLE

from ..shared.words import DASH, interval, mean_interval, mean_percent, percent, printable

UNFINISHED = "unfinished"  # as `Run.results` names the method of such an interval


@dataclass(frozen=True)
class ThreatLabel:
    """A norm and a radius; two are equal if their texts are equal."""

    norm: str
    eps_text: str
    eps: float = field(compare=False)

    def __str__(self) -> str:
        return f"{self.norm} {self.eps_text}"

    @property
    def is_minimum(self) -> bool:
        """Whether distances of adversarial examples were looked for, at no radius."""
        return math.isinf(self.eps)


@dataclass(frozen=True)
class ResultRow:
    """One row of `Run.results`; `threat` is None in the clean row."""

    model: str
    threat: ThreatLabel | None
    attack: str
    role: str
    n: int
    correct: int
    low: float
    high: float
    method: str
    attacked: int
    broken: int
    forwards: int
    backwards: int
    abstained: int = 0  # clean images on which a model abstains, or which it rejects
    errors: int = 0  # images without a verdict, because they ended every process; not among `correct`
    undecided: int = 0  # images of an unfinished run without a verdict in this row
    one_draw: float = math.nan  # accuracy of a single draw with its interval; NaN unless the model is randomized
    one_draw_low: float = math.nan
    one_draw_high: float = math.nan
    distance: float = math.nan  # median, of the nearest adversarial examples; NaN where there is a radius
    distance_low: float = math.nan
    distance_high: float = math.nan

    @property
    def percent(self) -> str:
        """The accuracy as text; of an unfinished attack an upper end, because it may break what it did not reach."""
        return (
            f"\N{LESS-THAN OR EQUAL TO} {percent(self.correct, self.n)}"
            if self.is_open
            else percent(self.correct, self.n)
        )

    @property
    def is_open(self) -> bool:
        """Whether images that the attack has not reached count as correct."""
        return self.method == UNFINISHED

    @property
    def interval(self) -> str:
        """Its 95 % interval as text."""
        return interval(self.low, self.high, self.correct, self.n)

    @property
    def count(self) -> str:
        """Images classified correctly, of all images."""
        return f"{self.correct}/{self.n}"

    @property
    def one_draw_percent(self) -> str:
        """The accuracy of a single draw as text; empty unless the model is randomized."""
        return "" if math.isnan(self.one_draw) else mean_percent(self.one_draw)

    @property
    def one_draw_interval(self) -> str:
        """Its 95 % interval as text; empty unless the model is randomized."""
        if math.isnan(self.one_draw):
            return ""
        return mean_interval(self.one_draw_low, self.one_draw_high, self.one_draw)

    @property
    def distance_text(self) -> str:
        """The median distance as text; empty where there is a radius."""
        return distance_text(self.distance)

    @property
    def distance_interval(self) -> str:
        """Its 95 % interval as text; empty where there is a radius."""
        low, high = distance_text(self.distance_low), distance_text(self.distance_high)
        return "" if math.isnan(self.distance) else f"{low}{DASH}{high}"

    @property
    def images(self) -> int:
        """Number of images that the passes were spent on: those attacked, or all in the clean row."""
        return self.n if self.role == "clean" else self.attacked


class OrderedRow(NamedTuple):
    """A row in reading order; `ensemble` names the ensemble it is a member of."""

    cell: ResultRow
    ensemble: str | None

    @property
    def name(self) -> str:
        """The attack's name, without the ensemble's in front of it."""
        return self.cell.attack.removeprefix(f"{self.ensemble}/") if self.ensemble else self.cell.attack


def result_rows(results: pd.DataFrame) -> tuple[ResultRow, ...]:
    """The rows of `Run.results` about attacks; corruptions have tables of their own."""
    return tuple(
        ResultRow(
            model=printable(str(row["model"])),
            threat=None
            if row["role"] == "clean"
            else ThreatLabel(str(row["norm"]), str(row["eps_text"]), float(row["eps"])),
            attack=printable(str(row["attack"])),
            role=str(row["role"]),
            n=_count(row["n"]),
            correct=_count(row["correct"]),
            low=float(row["ci_low"]),
            high=float(row["ci_high"]),
            method=str(row["ci_method"]),
            attacked=_count(row["attacked"]),
            broken=_count(row["broken"]),
            forwards=_count(row["forwards"]),
            backwards=_count(row["backwards"]),
            abstained=_count(row.get("abstained")),
            one_draw=float(row.get("draw_accuracy", math.nan)),
            one_draw_low=float(row.get("draw_ci_low", math.nan)),
            one_draw_high=float(row.get("draw_ci_high", math.nan)),
            errors=_count(row.get("errors")),
            undecided=_count(row.get("undecided")),
            distance=float(row.get("median_distance", math.nan)),
            distance_low=float(row.get("distance_low", math.nan)),
            distance_high=float(row.get("distance_high", math.nan)),
        )
        for row in results[results["role"] != ROLE].to_dict("records")
    )


def in_reading_order(rows: Sequence[ResultRow]) -> list[OrderedRow]:
    """The attacks of one model at one threat, each ensemble followed by its members, and the audit."""
    ensembles = [row.attack for row in rows if row.role == "ensemble"]
    owners = _owners(rows, ensembles)
    order: list[OrderedRow] = []
    for row in rows:
        if row.role not in ("attack", "ensemble", "audit"):
            continue
        order.append(OrderedRow(row, None))
        if row.role == "ensemble":
            members = [i for i, other in enumerate(rows) if other.role == "member" and owners[i] == row.attack]
            order += [OrderedRow(rows[i], row.attack) for i in members]
    return order


def _owners(rows: Sequence[ResultRow], ensembles: list[str]) -> dict[int, str]:
    """The ensemble of each member, by the member's position: from its prefix, else from the nearest ensemble row."""
    owners: dict[int, str] = {}
    if not ensembles:
        return owners
    roles = [row.role for row in rows]
    members_first = "member" in roles and roles.index("member") < roles.index("ensemble")
    ensembles_before = 0
    for i, row in enumerate(rows):
        ensembles_before += row.role == "ensemble"
        if row.role == "member":
            nearest = ensembles[
                min(ensembles_before, len(ensembles) - 1) if members_first else max(ensembles_before - 1, 0)
            ]
            owners[i] = next((name for name in ensembles if row.attack.startswith(f"{name}/")), nearest)
    return owners


def _count(value: float | None) -> int:
    """A count as an integer; 0 where the frame has none."""
    return 0 if value is None or pd.isna(value) else int(value)


def distance_text(value: float) -> str:
    """A median distance as text; empty where there is none."""
    return "" if math.isnan(value) else "unknown" if math.isinf(value) else f"{value:.3g}"
