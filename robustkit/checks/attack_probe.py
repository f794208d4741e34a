"""Probes that are attacks: one specification on some images at one threat, through the engine of every run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from robustkit.checks.check import LEVELS, reaches
from robustkit.checks.facts import Level, ModelFacts, ProbeRecord, RunThreat
from robustkit.checks.probing import ProbeBench, RunAttacks, Wanted
from robustkit.engine.jobs import Job, likeliest, loss_targets_of
from robustkit.engine.scheduler import run
from robustkit.errors import UserError
from robustkit.primitives import registry
from robustkit.primitives.protocol import Attack, TrialCost

_SEED = 1  # added to the run's: a random start of its own


@dataclass(frozen=True)
class AttackProbe:
    """An attack of a check.

    Args:
        specification: by level, such as "apgd:steps=200".
        counts: images, by level.
        images: those that it may be run on at one threat; some of them are drawn.
        places: the threats at which it is run.
        how: what is special about it, behind the specification in the name of the probe.
    """

    specification: Mapping[Level, str]
    counts: Mapping[Level, int]
    images: Callable[[ModelFacts, RunThreat], Iterable[int]]
    places: Callable[[ModelFacts], Iterable[RunThreat]]
    how: str = ""

    def at(self, facts: ModelFacts, place: RunThreat) -> Wanted:
        """The images on which it is needed at one threat."""
        level = self._level(facts)
        chosen = facts.drawn(self.images(facts, place), self.counts[level])
        return Wanted(place, self.specification[level] + self.how, chosen)

    def applies(self, facts: ModelFacts) -> bool:
        """Whether it says anything about a model."""
        return facts.deterministic

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        if not self.applies(facts):
            return
        for place in self.places(facts):
            yield self.at(facts, place)

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        try:
            method = self._method(wanted)
        except UserError:  # it has no form in this norm, and will be refused
            return TrialCost(0, 0)
        return TrialCost(method.trials * method.cost.forwards, method.trials * method.cost.backwards)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        method = self._method(wanted)
        outcomes = run(
            bench.session, method, self._jobs(bench, wanted), slots=bench.slots, seed=bench.facts.seed + _SEED
        )
        for outcome in outcomes:
            yield bench.record(
                wanted, outcome.sample, outcome.success, outcome.queries, outcome.forwards, outcome.backwards
            )

    def _jobs(self, bench: ProbeBench, wanted: Wanted) -> Iterator[Job]:
        method = self._method(wanted)
        batch = bench.images(wanted.images)
        scores = bench.session.judge(batch.x)
        for number, image, label, row in zip(batch.numbers, batch.x, batch.y.tolist(), scores, strict=True):
            yield Job(number, image, label, loss_targets_of(method, likeliest(row, label)))

    def _method(self, wanted: Wanted) -> Attack:
        return registry.build(wanted.probe.removesuffix(self.how), wanted.place.norm, wanted.place.eps_text)

    def _level(self, facts: ModelFacts) -> Level:
        """The highest level that was asked for and that the probe knows."""
        return next(level for level in reversed(LEVELS) if level in self.counts and reaches(level, facts.level))
