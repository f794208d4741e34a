"""Adversarial examples of other models: where they break what the attacks on the model itself left, these failed.

Carlini et al. 2019, arXiv:1902.06705, section 4.3; Athalye et al. 2018, section 3.1: white-box attacks are the stronger
ones. The stored examples of the run's other models are tried, which costs a forward pass each.
"""

from collections.abc import Iterator

import torch

from robustkit.checks.check import Finding, Rule, graded
from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat, StoredWitness
from robustkit.checks.probing import ProbeBench, RunAttacks, Wanted
from robustkit.primitives.protocol import TrialCost
from robustkit.statistics.intervals import proportion

_PREFIX = "transferred from "
_FEWEST = 2
_NOTED, _WRONG = 0.02, 0.1  # lower end of the share of the survivors with a foreign witness


def _foreign(facts: ModelFacts, place: RunThreat) -> dict[str, dict[int, list[StoredWitness]]]:
    """The witnesses of each other model at one threat, of images that stand here."""
    standing = facts.survivors(place)
    found: dict[str, dict[int, list[StoredWitness]]] = {}
    for each in facts.witnesses:
        if each.model != facts.model and (each.norm, each.eps_text) == place and each.sample in standing:
            found.setdefault(each.model, {}).setdefault(each.sample, []).append(each)
    return found


class TransferProbe:
    """For each image that stands, whether an adversarial example of another model is an error here."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        for place in facts.radii if facts.deterministic and not facts.transferred else ():
            for model, witnesses in _foreign(facts, place).items():
                yield Wanted(place, _PREFIX + model, tuple(sorted(witnesses)))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return TrialCost(len(attacks(wanted.place)), 0)  # one picture of each

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        witnesses = _foreign(bench.facts, wanted.place)[wanted.probe.removeprefix(_PREFIX)]
        batch = bench.images(wanted.images)
        for number, x, label in zip(batch.numbers, batch.x, batch.y.tolist(), strict=True):
            points = torch.stack([torch.from_numpy(each.x_adv.copy()) for each in witnesses[number]]).to(x)
            broken = bool((bench.session.logits(points).argmax(1).cpu() != label).any())
            yield bench.record(wanted, number, broken, forwards=len(points))


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat."""
    wanted = list(TransferProbe().wanted(facts))
    if not wanted:
        why = "The run has no other model whose adversarial examples could be tried on the images that stand."
        yield Finding("", "not_applicable", why)
    for place in dict.fromkeys(each.place for each in wanted):
        rows = [facts.probed(place, each.probe, each.images) for each in wanted if each.place == place]
        if any(each is None for each in rows):
            yield Finding(place.text, "not_run", "The run has not finished it; give the same command again.")
            continue
        tried = {row.sample for each in rows for row in each or ()}
        broken = {row.sample for each in rows for row in each or () if row.outcome}
        low = proportion(len(broken), len(tried)).low
        many = len(broken) >= _FEWEST
        status = graded(invalid=many and low > _WRONG, warning=many and low > _NOTED)
        text = f"adversarial examples of other models broke {len(broken)} of {len(tried)} images that stand."
        numbers = {"broken": len(broken), "tried": len(tried)}
        yield Finding(place.text, status, text, tuple(sorted(broken)), numbers)


RULE = Rule(
    name="transfer_wins",
    title="Adversarial examples of other models find nothing more",
    level="standard",
    severity="invalidating",
    note="transferred examples find more",
    remedy="Find the layer that masks gradients with robustkit diagnose, and add robustkit evaluate --surrogate.",
    judge=judge,
    probes=(TransferProbe(),),
)
