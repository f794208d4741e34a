"""What an evaluation will do, as a list of cells: one attack in one threat model, in the order they are run.

Within a norm the radii ascend, because an image that is broken at a smaller one is broken at a larger one by the same
point.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from robustkit.errors import UserError
from robustkit.primitives import registry
from robustkit.primitives.protocol import Attack
from robustkit.primitives.threat import NormName, norm_name, radius


class Threat(NamedTuple):
    """One norm ball: its text is what reports show, its number what attacks use."""

    norm: NormName
    eps_text: str
    eps: float


@dataclass(frozen=True)
class Column:
    """One attack, or an ensemble whose members run one after the other on what the ones before left."""

    name: str
    specifications: tuple[str, ...]
    ensemble: bool
    surrogate: str | None = None  # the model that is asked, where it is not the attacked one


@dataclass(frozen=True)
class PlannedAttack:
    """One attack in one threat model."""

    threat: Threat
    column: str
    name: str  # the column's name, or "column/member"
    attack: Attack
    stage: int  # position in its ensemble
    surrogate: str | None
    smaller: str | None  # text of the next smaller radius of the same norm


@dataclass(frozen=True)
class Plan:
    """All cells for one model, and what determines them."""

    threats: tuple[Threat, ...]
    columns: tuple[Column, ...]

    def cells(self) -> Iterator[PlannedAttack]:
        """In the order of work: threats, then columns, then stages."""
        before: Threat | None = None
        for threat in self.threats:
            smaller = before.eps_text if before is not None and before.norm == threat.norm else None
            for column in self.columns:
                for stage, specification in enumerate(column.specifications):
                    attack = registry.build(specification, threat.norm, threat.eps_text)
                    yield PlannedAttack(
                        threat, column.name, member(column, specification), attack, stage, column.surrogate, smaller
                    )
            before = threat

    def described(self) -> list[dict[str, Any]]:
        """Every attack with all its hyper-parameters, for the manifest."""
        first = self.threats[0]
        return [
            {
                "name": member(column, specification),
                **registry.described(registry.build(specification, first.norm, first.eps_text)),
            }
            for column in self.columns
            for specification in column.specifications
        ]


def plan(attacks: Sequence[str], threats: Sequence[Threat], surrogates: Sequence[str] = ()) -> Plan:
    """The plan for these attack specifications and ensemble names; each on every surrogate, if there are any.

    Raises:
        UserError: an attack is unknown, given twice, or has no form for one of the norms.
    """
    if not attacks:
        raise UserError("No attack is given; name one, for example pgd, or the ensemble standard.")
    asked: Sequence[str | None] = surrogates or [None]
    columns = tuple(_column(text, surrogate) for surrogate in asked for text in attacks)
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"The attack {name!r} is given twice; leave one out.")
    made = Plan(tuple(threats), columns)
    for _ in made.cells():  # builds every attack, so that a bad hyper-parameter is met before any work
        pass
    return made


def threats_of(norms: Sequence[str], radii: Sequence[str], usual: Sequence[tuple[str, str]]) -> list[Threat]:
    """The threat models asked for, ascending within each norm.

    Args:
        norms: names; empty means those that are usual for the data set.
        radii: texts, "8/255" or "L2:0.5"; empty means the usual ones.
        usual: (norm, eps) pairs of the data set.

    Raises:
        UserError: a radius is out of range, or it is not clear which norm it belongs to.
    """
    pairs = [_pair(text) for text in radii]
    named = [norm_name(norm) for norm in norms]
    if not named:
        free = [text for norm, text in pairs if norm is None]
        named = [norm for norm, _ in pairs if norm is not None] + ([norm_name(usual[0][0])] if free else [])
    if not pairs:
        pairs = [(norm_name(norm), text) for norm, text in usual if not named or norm_name(norm) in named]
        named = named or [norm for norm, _ in pairs if norm is not None]
    for other, text in pairs:
        if other is not None and other not in named:
            raise UserError(f"The radius {other}:{text} is for a norm that --norm does not name; add --norm {other}.")
    chosen = []
    for norm in dict.fromkeys(named):
        own = [text for given, text in pairs if given == norm or (given is None and len(set(named)) == 1)]
        if not own:
            raise UserError(f"There is no radius for {norm}; add one, for example --eps {norm}:{_EXAMPLE[norm]}.")
        unique = {radius(norm, text): text for text in reversed(own)}
        chosen += [Threat(norm, unique[value], value) for value in sorted(unique)]
    if any(norm is None for norm, _ in pairs) and len(set(named)) > 1:
        raise UserError("With several norms each radius names its own: write --eps Linf:8/255 --eps L2:0.5.")
    return chosen


_EXAMPLE = {"Linf": "8/255", "L2": "0.5", "L1": "12", "L0": "10"}


def member(column: Column, specification: str) -> str:
    """What reports call one attack of a column."""
    return f"{column.name}/{registry.parsed(specification)[0]}" if column.ensemble else column.name


def _column(text: str, surrogate: str | None) -> Column:
    where = "" if surrogate is None else f"@{surrogate.replace('/', '-')}"  # a slash sets a member apart
    if text.lower() in registry.ENSEMBLES:
        return Column(text.lower() + where, registry.ENSEMBLES[text.lower()], ensemble=True, surrogate=surrogate)
    return Column(registry.title(text) + where, (text,), ensemble=False, surrogate=surrogate)


def _pair(text: str) -> tuple[NormName | None, str]:
    norm, colon, eps = text.strip().rpartition(":")
    try:
        Fraction(eps)
    except (ValueError, ZeroDivisionError):
        raise UserError(f"{text!r} is no radius; write a number or a fraction such as 8/255, or L2:0.5.") from None
    return (norm_name(norm) if colon else None), eps
