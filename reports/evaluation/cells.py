"""The frame of results as typed values, one `Cell` per row, in the order of the frame."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from ..shared.words import interval, percent, printable


@dataclass(frozen=True)
class ThreatLabel:
    """A norm and a radius; two are the same if they read the same."""

    norm: str
    eps_text: str
    eps: float = field(compare=False)

    def __str__(self) -> str:
        return f"{self.norm} {self.eps_text}"


@dataclass(frozen=True)
class ResultRow:
    """One row of `Run.results`; `threat` is None for the clean row."""

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
    abstained: int = 0  # of a smoothed model's clean images

    @property
    def percent(self) -> str:
        """The accuracy in words."""
        return percent(self.correct, self.n)

    @property
    def interval(self) -> str:
        """Its 95 % interval in words."""
        return interval(self.low, self.high, self.correct, self.n)

    @property
    def count(self) -> str:
        """What the accuracy rests on."""
        return f"{self.correct}/{self.n}"

    @property
    def images(self) -> int:
        """How many images the passes were spent on; the clean row attacks none and asks about all."""
        return self.attacked or self.n


class Placed(NamedTuple):
    """A row in reading order; `ensemble` names the ensemble it is a member of."""

    cell: ResultRow
    ensemble: str | None

    @property
    def name(self) -> str:
        """The attack's name, without the ensemble's in front of it."""
        return self.cell.attack.removeprefix(f"{self.ensemble}/") if self.ensemble else self.cell.attack


def cells(results: pd.DataFrame) -> tuple[ResultRow, ...]:
    """The rows of `Run.results`."""
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
        )
        for row in results.to_dict("records")
    )


def placed(rows: Sequence[ResultRow]) -> list[Placed]:
    """The attacks of one model and threat in reading order: each ensemble is followed by its members."""
    ensembles = [row.attack for row in rows if row.role == "ensemble"]
    owners = _owners(rows, ensembles)
    order: list[Placed] = []
    for row in rows:
        if row.role not in ("attack", "ensemble"):
            continue
        order.append(Placed(row, None))
        if row.role == "ensemble":
            members = [i for i, other in enumerate(rows) if other.role == "member" and owners[i] == row.attack]
            order += [Placed(rows[i], row.attack) for i in members]
    return order


def _owners(rows: Sequence[ResultRow], ensembles: list[str]) -> dict[int, str]:
    """For each member's position the ensemble it belongs to: by its prefix, else by its neighbour in the frame."""
    owners: dict[int, str] = {}
    if not ensembles:
        return owners
    roles = [row.role for row in rows]
    members_first = "member" in roles and roles.index("member") < roles.index("ensemble")
    seen = 0
    for i, row in enumerate(rows):
        seen += row.role == "ensemble"
        if row.role == "member":
            near = ensembles[min(seen, len(ensembles) - 1) if members_first else max(seen - 1, 0)]
            owners[i] = next((name for name in ensembles if row.attack.startswith(f"{name}/")), near)
    return owners


def _count(value: float | None) -> int:
    """A count; what was never counted is 0."""
    return 0 if value is None or pd.isna(value) else int(value)
