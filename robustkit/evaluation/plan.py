"""The plan of an evaluation: every attack in every threat model, in the order they are run.

Within a norm the radii ascend, because an image that is broken at a smaller radius is broken at a larger one by the
same point. Where distances are asked for, every image is attacked, and to the end.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any, Final, NamedTuple

from robustkit.classifier.oracle import OracleCost
from robustkit.errors import UserError
from robustkit.evaluation.threats import Threat
from robustkit.evidence.audit import AUDIT, ENSEMBLE
from robustkit.primitives import ensembles, registry
from robustkit.primitives.given_examples import GivenExamples
from robustkit.primitives.hyper_parameters import json_value
from robustkit.primitives.perceptual import PerceptualAttack
from robustkit.primitives.protocol import Attack, TrialCost, cost_of
from robustkit.primitives.stage import Stage, Threshold
from robustkit.primitives.threat import MINIMUM, attacks_for

PICTURED: Final = 24  # images of which each attack leaves a picture
_ANY = 1  # the radius of attacks that wait for the one of a threat model
_ALONE = Stage("", "")  # of an attack that is no member of an ensemble: it attacks every image and measures nothing


class Passes(NamedTuple):
    """Passes of one image."""

    forwards: int
    backwards: int


@dataclass(frozen=True)
class Member:
    """One attack of a column, in any threat model."""

    name: str  # the column's name, or "column/member"
    attack: Attack
    in_norm: Mapping[str, Attack] = field(default_factory=dict)  # norms in which it is another attack
    stages: Mapping[str, Stage] = field(default_factory=dict)  # of an ensemble, by norm

    def at(self, threat: Threat) -> Attack:
        """The attack in one threat model."""
        norm = threat.ball_name
        return replace(self.in_norm.get(norm, self.attack), norm=norm, eps=threat.eps_text, mask=threat.mask)

    def described(self) -> dict[str, Any]:
        """All hyper-parameters, in every norm, so that a run may get further norms."""
        usual = registry.described(self.attack)
        others = {norm: registry.described(attack) for norm, attack in self.in_norm.items()}
        differing = {
            norm: {key: value for key, value in other.items() if usual.get(key) != value}
            for norm, other in others.items()
        }
        stages = self.stages.items()
        of_stages = {
            "reach": {norm: each.threshold.described() for norm, each in stages if each.threshold != Threshold()},
            "measures": {norm: each.measures.described() for norm, each in stages if each.measures},
            "targets_at_least": {norm: each.targets_at_least for norm, each in stages if each.targets_at_least},
            "all_if_replaced": any(each.all_if_replaced for _, each in stages),
        }
        return {"name": self.name, **usual, **differing, **{key: value for key, value in of_stages.items() if value}}


@dataclass(frozen=True)
class Column:
    """One attack, or an ensemble whose members run one after the other on what the ones before left."""

    name: str
    members: tuple[Member, ...]
    surrogate: str | None = None  # the model that is queried, where it is not the attacked one
    audit: int | None = None  # it attacks only so many random survivors of all other columns


@dataclass(frozen=True)
class PlannedAttack:
    """One member of one column in one threat model."""

    threat: Threat
    column: Column
    member: Member
    attack: Attack  # the member's, in this threat model
    smaller: str | None  # text of the next smaller radius of the same norm
    has_own_code: bool = False  # whether it, or its loss, is the user's own

    @property
    def name(self) -> str:
        """The attack's name in evidence and tables."""
        return self.member.name

    @property
    def cell(self) -> str:
        """Where its results stand for a model: the threat model and the name."""
        return f"{self.threat.norm} {self.threat.eps_text} {self.name}"

    @property
    def counts_queries(self) -> bool:
        """Whether the queries that each image takes are evidence: no gradients, no surrogate model, no ensemble."""
        black_box = self.attack.sees != "gradients" and self.column.surrogate is None
        return black_box and self.name == self.column.name and not self.attack.made_elsewhere

    @property
    def stage(self) -> Stage:
        """What it does as a member of an ensemble in this norm."""
        return self.member.stages.get(self.threat.ball_name, _ALONE)

    def at_most(self, cost: OracleCost) -> Passes:
        """What an image needs that stands: queries and verdicts of every trial at this cost, and a measure."""
        trials, most = self.attack.trials, cost_of(self.attack)
        measures = self.stage.measures
        measured = TrialCost(0, 0) if measures is None else measures.cost
        return Passes(
            trials * ((most.forwards - 1) * cost.query + cost.verdict) + measured.forwards,
            trials * most.backwards * cost.query + measured.backwards,
        )

    @cached_property
    def most_passes(self) -> int:
        """Forwards and backwards of an image that stands, of a model that answers a query with one pass."""
        return sum(self.at_most(OracleCost(1, 1)))


@dataclass(frozen=True)
class Plan:
    """What is run for each model.

    Raises:
        UserError: an attack has no form for one of the norms.
    """

    threats: tuple[Threat, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _ = self.attacks  # so that a norm which an attack does not know is met before any work

    @cached_property
    def attacks(self) -> tuple[PlannedAttack, ...]:
        """In the order of work: threats, then columns, then members."""
        planned: list[PlannedAttack] = []
        before: Threat | None = None
        for threat in self.threats:
            same = before is not None and before.norm == threat.norm and math.isfinite(threat.eps)
            smaller = before.eps_text if before is not None and same else None
            planned += [
                PlannedAttack(
                    threat, column, member, attack := member.at(threat), smaller, registry.has_own_code(attack)
                )
                for column in self.columns
                for member in column.members
            ]
            before = threat
        return tuple(planned)

    @property
    def audit(self) -> int | None:
        """How many survivors are audited; None for no audit."""
        return next((column.audit for column in self.columns if column.audit is not None), None)

    def attacks_at(self, norm: str, eps_text: str) -> list[Attack]:
        """The attacks in one threat model, apart from audits."""
        return [
            each.attack for each in self.attacks
            if each.column.audit is None and (each.threat.norm, each.threat.eps_text) == (norm, eps_text)
        ]  # fmt: skip

    def described(self) -> list[dict[str, Any]]:
        """Every attack with all its hyper-parameters, for the manifest."""
        return [member.described() for column in self.columns for member in column.members]


def plan(
    attacks: Sequence[str | Attack | GivenExamples], threats: Sequence[Threat], surrogates: Sequence[str] = (),
    audit: int | None = None,
) -> Plan:  # fmt: skip
    """The plan for specifications, names of ensembles, attacks and examples; each on every surrogate, if there are any.

    With `audit`, AutoAttack on so many random survivors of all of them comes last at every threat.

    Raises:
        UserError: an attack is unknown, given twice, or has no form for one of the norms; or transfer is audited.
    """
    if not attacks:
        raise UserError("No attack is given; name one, for example pgd, or the ensemble default.")
    queried: Sequence[str | None] = surrogates or [None]
    _check_norms_of_ensembles(attacks, threats)
    if audit is not None:
        _check_audited(threats)
    columns = tuple(
        _column(attack, threats[0], surrogate)
        for surrogate in queried
        for attack in attacks
        if not isinstance(attack, GivenExamples) or surrogate == queried[0]
    )
    if surrogates and any(math.isinf(threat.eps) for threat in threats):
        raise UserError("A transfer attack needs a radius; leave out the minimum or --surrogate.")
    if audit is not None and any(math.isinf(threat.eps) for threat in threats):
        raise UserError("An audit needs a radius; leave out the minimum or --audit.")
    if any(math.isinf(threat.eps) for threat in threats) and any(len(column.members) > 1 for column in columns):
        several = next(column.name for column in columns if len(column.members) > 1)
        raise UserError(
            f"{several} needs a radius in place of {MINIMUM!r}: each member attacks images that others did not break. "
            "For distances name single attacks, such as fab or pgd."
        )
    if audit is not None:
        if surrogates:
            raise UserError(
                "An audit attacks the models themselves, not a surrogate; leave out --audit or --surrogate."
            )
        columns = (*columns, Column(AUDIT, tuple(_members(ENSEMBLE, AUDIT)), audit=audit))
    _check_features(columns)
    _check_names([column.name for column in columns], attacks)
    _check_spellings(columns)
    return Plan(tuple(threats), columns)


def clean_stage(model: str) -> str:
    """The name of the stage of clean images."""
    return f"{model} clean"


def attack_stage(model: str, attack: PlannedAttack) -> str:
    """The name of the stage of one attack in one threat model."""
    return f"{model} {attack.cell}"


def checks_stage(model: str) -> str:
    """The name of the stage of the checks' own passes."""
    return f"{model} checks"


def _check_norms_of_ensembles(attacks: Sequence[str | Attack | GivenExamples], threats: Sequence[Threat]) -> None:
    for attack, threat in product(attacks, threats):
        if isinstance(attack, str) and ensembles.is_ensemble(attack):
            ensembles.check_norm(attack, threat.ball_name)


def _check_audited(threats: Sequence[Threat]) -> None:
    for threat in threats:
        if attacks_for(threat.ball_name):
            raise UserError(
                f"An audit attacks with AutoAttack, which has no {threat.ball_name} form; leave out --audit."
            )


def _check_features(columns: Sequence[Column]) -> None:
    """One threat has one distance, and features of two networks are two distances."""
    attacks = [member.attack for column in columns for member in column.members]
    perceptual = [each for each in attacks if isinstance(each, PerceptualAttack)]
    if len({json.dumps(json_value([each.network, each.weights, each.layers])) for each in perceptual}) > 1:
        raise UserError("These attacks compare features of different networks or layers; make a run for each.")


def _check_names(names: Sequence[str], attacks: Sequence[str | Attack | GivenExamples]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is None:
        return
    if any(isinstance(attack, GivenExamples) and attack.name == twice for attack in attacks):
        raise UserError(f"Two attacks are called {twice!r}; rename the file, or give load_examples another name=.")
    raise UserError(f"The attack {twice!r} is given twice; leave one out.")


def _check_spellings(columns: Sequence[Column]) -> None:
    """Refuse one attack under two names, such as pgd and pgd:restarts=1."""
    single = [column for column in columns if len(column.members) == 1]
    meant = [(registry.described(column.members[0].attack), column.surrogate) for column in single]
    for (one, first), (other, second) in combinations(zip(single, meant, strict=True), 2):
        if first == second:
            raise UserError(f"{one.name!r} and {other.name!r} are the same attack; leave one out.")


def _column(attack: str | Attack | GivenExamples, threat: Threat, surrogate: str | None) -> Column:
    where = "" if surrogate is None else f"@{surrogate.replace('/', '-')}"  # a slash sets a member apart
    if isinstance(attack, Attack):
        return _single(registry.spelled(attack) + where, attack, surrogate)
    if isinstance(attack, GivenExamples):
        return _single(attack.name, attack.within(threat.eps_text, threat.ball_name), None)  # no model is queried
    if ensembles.is_ensemble(attack):
        name = ensembles.name_of(attack) + where
        return Column(name, tuple(_members(attack, name)), surrogate)
    built = registry.build(attack, threat.ball_name, threat.eps_text)
    return _single(registry.title(attack) + where, built, surrogate)


def _members(ensemble: str, column: str) -> Iterator[Member]:
    """The members of an ensemble; those of other norms only where they differ."""
    for number, stage in enumerate(ensembles.stages(ensemble, "Linf")):
        stages = {norm: ensembles.stages(ensemble, norm)[number] for norm in ("Linf", "L2", "L1")}
        others = {
            norm: registry.build(each.specification, norm, _ANY)
            for norm, each in stages.items()
            if each.specification != stage.specification
        }
        attack = registry.build(stage.specification, "Linf", _ANY)
        yield Member(f"{column}/{stage.label}", attack, others, stages)


def _single(name: str, attack: Attack, surrogate: str | None) -> Column:
    return Column(name, (Member(name, attack),), surrogate)
