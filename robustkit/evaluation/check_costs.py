"""The passes of automatic checks: at most, from the plan alone, and predicted from the pilot of a run.

A bound takes every image to stand and every picture to be stored. A prediction runs each probe on a few images of the
pilot, and counts as many as the pilot's share of survivors says; checks look at few images, however large the run is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from robustkit.checks.facts import Level, ModelFacts, ProbeRecord, RunThreat, StoredWitness
from robustkit.checks.probing import CLEAN, Wanted
from robustkit.checks.register import probes_of
from robustkit.classifier.classifier import Classifier
from robustkit.evaluation.checking import ModelChecks
from robustkit.evaluation.identity import identity_of
from robustkit.evaluation.plan import PICTURED, Passes, Plan
from robustkit.evaluation.resolved import Evaluation
from robustkit.evidence.checked import facts_of_run, makes_passes
from robustkit.evidence.store import Store
from robustkit.host.progress import ProgressWatch

_TRIED = 3  # images of the pilot for each probe: most of them stand, and cost the same


class CheckCost(NamedTuple):
    """The passes of one check at one threat."""

    check: str
    threat: str  # "-" for what is about clean images
    images: float
    forwards: float
    backwards: float
    bound: bool  # whether it is the most that it can be


class ProbeCost(NamedTuple):
    """The passes of one probe at one threat."""

    check: str
    wanted: Wanted
    each: Passes  # of one image, at most


def checks_at_most(
    models: Sequence[str], planned: Plan, level: Level, images: int, *, smoothed: bool = False, stops: bool = False
) -> list[CheckCost]:
    """The most passes that the checks of the first of some models make.

    Args:
        models: of the run.
        planned: the plan of the run.
        level: of the checks.
        images: how many the run has.
        smoothed: whether the models are smoothed.
        stops: whether operations of their forward may stop gradients, which most models have none of.
    """
    facts = _costliest(models, planned, level, range(images), smoothed=smoothed)
    facts = replace(facts, gradient_stops=("any",) if stops else ())
    costs = [
        (each, len(each.wanted.images), each.each.forwards, each.each.backwards, True)
        for each in _probes(facts, planned)
    ]
    return list(_by_check(costs))


def predicted_checks(
    evaluation: Evaluation, pilot: Evaluation, classifier: Classifier, store: Store, watch: ProgressWatch
) -> tuple[list[CheckCost], int]:
    """What the checks of one model will cost, and the passes that it took to say so.

    Args:
        evaluation: the whole run.
        pilot: with some of its images, whose attacks are finished.
        classifier: the model.
        store: the evidence of the pilot, which gets the rows of its checks.
        watch: is told of the progress.
    """
    alone = replace(pilot, classifiers=(classifier,))
    identity = identity_of(alone)
    if not makes_passes(identity, store.manifest(), evaluation.checks):
        return [], 0
    facts = facts_of_run(store, identity, store.manifest(), evaluation.checks)[classifier.name]
    facts = replace(facts, n=len(evaluation.ids))  # some probes are named after it
    ModelChecks(alone, classifier, facts, store, watch, most=_TRIED).run()
    measured: dict[tuple[str, str, str], list[Passes]] = {}
    for row in store.rows(ProbeRecord, classifier.name):
        measured.setdefault((row.norm, row.eps_text, row.probe), []).append(Passes(row.forwards, row.backwards))
    models = [classifier.name, *(each.name for each in evaluation.classifiers if each is not classifier)]
    costs = _predicted(facts, models, evaluation, pilot, measured)
    return list(_by_check(costs)), sum(each.forwards + each.backwards for rows in measured.values() for each in rows)


_Cost = tuple[ProbeCost, float, float, float, bool]  # a probe; images; forwards and backwards of each; a bound?


def _predicted(
    facts: ModelFacts, models: Sequence[str], evaluation: Evaluation, pilot: Evaluation,
    measured: Mapping[tuple[str, str, str], Sequence[Passes]],
) -> Iterator[_Cost]:  # fmt: skip
    scale = len(evaluation.ids) / len(pilot.ids)
    # The pilot has no other model, whose pictures would be tried.
    pictures = _pictures(models[1:], pilot.ids[:PICTURED], evaluation.plan)
    with_others = replace(facts, witnesses=(*facts.witnesses, *pictures))
    here = {(each.wanted.place, each.wanted.probe): each.wanted for each in _probes(with_others, evaluation.plan)}
    whole = _costliest(models, evaluation.plan, evaluation.checks, evaluation.ids, smoothed=facts.smoothed)
    whole = replace(whole, randomized=facts.randomized, gradient_stops=facts.gradient_stops)
    for each in _probes(whole, evaluation.plan):
        found = here.get((each.wanted.place, each.wanted.probe))
        images = min(len(each.wanted.images), scale * len(found.images)) if found is not None else 0
        rows = measured.get((*each.wanted.place, each.wanted.probe), [])
        if rows:
            forwards, backwards = (sum(kind) / len(rows) for kind in zip(*rows, strict=True))
            yield each, images, forwards, backwards, False
        elif images:
            yield each, images, each.each.forwards, each.each.backwards, True


def _probes(facts: ModelFacts, planned: Plan) -> Iterator[ProbeCost]:
    for rule, probe in probes_of(facts):
        for wanted in probe.wanted(facts):
            cost = probe.at_most(wanted, lambda place: planned.attacks_at(*place))
            yield ProbeCost(rule.name, wanted, Passes(cost.forwards, cost.backwards))


def _costliest(
    models: Sequence[str], planned: Plan, level: Level, numbers: Sequence[int], *, smoothed: bool
) -> ModelFacts:
    """The facts of the first of some models that want most of its checks, and contradict each other.

    Every image is correct and stands, and there are pictures of errors of all models.
    """
    return ModelFacts(
        model=models[0], level=level, seed=0, n=len(numbers), classes=0, labels=dict.fromkeys(numbers, 0),
        correct=frozenset(numbers), places=tuple(RunThreat(each.norm, each.eps_text) for each in planned.threats),
        attacked={}, attacks=tuple(planned.described()), smoothed=smoothed,
        gradients_followed=any(each.attack.sees == "gradients" for each in planned.attacks),
        transferred=any(column.surrogate is not None for column in planned.columns),
        witnesses=tuple(_pictures(models, numbers[:PICTURED], planned)),
    )  # fmt: skip


def _pictures(models: Iterable[str], numbers: Sequence[int], planned: Plan) -> Iterator[StoredWitness]:
    pixels = np.zeros((1, 1, 1), dtype=np.float32)
    for model in models:
        for each in planned.attacks:
            for number in numbers:
                yield StoredWitness(
                    each.threat.norm, each.threat.eps_text, each.name, number, model, True, pixels, pixels
                )


def _by_check(costs: Iterable[_Cost]) -> Iterator[CheckCost]:
    """The probes of each check at each threat together; they are run on the same images."""
    groups: dict[tuple[str, RunThreat], list[_Cost]] = {}
    for cost in costs:
        groups.setdefault((cost[0].check, cost[0].wanted.place), []).append(cost)
    for (check, place), parts in groups.items():
        yield CheckCost(
            check, "-" if place == CLEAN else place.text, max(images for _, images, *_ in parts),
            sum(images * forwards for _, images, forwards, *_ in parts),
            sum(images * backwards for _, images, _, backwards, _ in parts), any(bound for *_, bound in parts),
        )  # fmt: skip
