"""Gradients through operations that pass none on: an attack that follows them breaks no more than the run did.

No gradient says what happens behind rounding, a `detach` or a lookup by `argmin`. Where the forward has such
operations, survivors are attacked through them: a step gets the gradient of the identity, a lookup that of a softmax
over the scores (Athalye et al. 2018, arXiv:1802.00420, section 4.1). What falls is an adversarial example of the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from robustkit.checks.attack_probe import AttackProbe
from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat
from robustkit.checks.probing import ProbeBench, Wanted
from robustkit.checks.survivors import judge_survivors, searchable, survivors
from robustkit.nethook.op_sites import named_stops

_FEW = 12  # images of a randomized model


@dataclass(frozen=True)
class StraightThroughProbe(AttackProbe):
    """An attack whose gradients pass through the operations that stop them.

    Args:
        of_randomized: whether randomized models are attacked, too, of which each query takes many draws.
    """

    of_randomized: bool = False

    def at(self, facts: ModelFacts, place: RunThreat) -> Wanted:
        wanted = super().at(facts, place)
        return wanted._replace(images=facts.drawn(wanted.images, _FEW)) if facts.randomized else wanted

    def applies(self, facts: ModelFacts) -> bool:
        stopped = bool(facts.gradient_stops) and not facts.straight_through
        return stopped and (facts.deterministic or (self.of_randomized and not facts.smoothed))

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        with bench.classifier.straight().session(bench.images(wanted.images).x, bench.facts.seed) as session:
            yield from super().run(replace(bench, session=session, slots=session.sizes.at_once), wanted)


PROBES = tuple(
    StraightThroughProbe({"quick": attack}, {"quick": 24}, survivors, searchable, " straight through", of_randomized)
    for attack, of_randomized in (("apgd:steps=40", True), ("apgd-t:steps=40,targets=3", False))
)


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat, if the model's forward stops gradients anywhere."""
    if facts.straight_through:
        yield Finding("", "not_applicable", "The attacks of the run follow these gradients themselves.")
        return
    if not facts.gradient_stops:
        yield Finding("", "not_applicable", "No operation that stops gradients was found in the model's forward.")
        return
    what = f"an attack with gradients straight through {named_stops(facts.gradient_stops)}"
    yield from judge_survivors(PROBES, what)(facts)


RULE = Rule(
    name="straight_through",
    title="Straight-through gradients break nothing more",
    level="quick",
    severity="invalidating",
    note="straight-through gradients break more images",
    remedy="Attack with these gradients: robustkit evaluate --straight-through; robustkit diagnose measures layers.",
    judge=judge,
    probes=PROBES,
)
