"""Whether errors survive a picture file, which has 256 levels: stored adversarial examples, rounded and asked again.

Each value is rounded towards the clean image, so the rounded point stays in the ball. It says what an attacker loses
who must hand in a file, and nothing about whether the result is right.
"""

from collections.abc import Iterator

import numpy as np
import torch

from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat, StoredWitness
from robustkit.checks.probing import ProbeBench, RunAttacks, Wanted
from robustkit.primitives.protocol import TrialCost
from robustkit.statistics.intervals import proportion

_LEVELS = 255
_OFF = 1e-3  # levels
_PREFIX = "8 bits after "
_HALF = 0.5


def rounded(witness: StoredWitness) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """`[C, H, W]` the adversarial example on the 256 levels, each value rounded towards the clean image."""
    clean = np.rint(witness.x.astype(np.float64) * _LEVELS)
    change = np.trunc(witness.x_adv.astype(np.float64) * _LEVELS - clean + np.sign(witness.x_adv - witness.x) * _OFF)
    result: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = ((clean + change) / _LEVELS).astype(np.float32)
    return result


def _witnesses(facts: ModelFacts) -> list[StoredWitness]:
    """Those of the model that are errors, of images with 256 levels."""
    return [
        each for each in facts.witnesses
        if each.model == facts.model and each.broken
        and bool((np.abs(each.x * _LEVELS - np.rint(each.x * _LEVELS)) < _OFF).all())
    ]  # fmt: skip


class RoundingProbe:
    """For each stored adversarial example, whether it is an error after rounding."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        images: dict[tuple[RunThreat, str], list[int]] = {}
        for each in _witnesses(facts) if facts.deterministic else ():
            images.setdefault((RunThreat(each.norm, each.eps_text), each.attack), []).append(each.sample)
        for (place, attack), numbers in images.items():
            yield Wanted(place, _PREFIX + attack, tuple(sorted(numbers)))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return TrialCost(1, 0)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        attack = wanted.probe.removeprefix(_PREFIX)
        stored = {
            each.sample: each for each in _witnesses(bench.facts)
            if (each.norm, each.eps_text) == wanted.place and each.attack == attack
        }  # fmt: skip
        batch = bench.images(wanted.images)
        points = torch.stack([torch.from_numpy(rounded(stored[number])) for number in batch.numbers])
        wrong = bench.session.logits(points.to(batch.x)).argmax(1).cpu() != batch.y
        for number, survives in zip(batch.numbers, wrong.tolist(), strict=True):
            yield bench.record(wanted, number, survives, forwards=1)


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat with stored errors."""
    wanted = list(RoundingProbe().wanted(facts))
    if not wanted:
        yield Finding("", "not_applicable", "No error is stored of an image with 256 levels.")
    for place in dict.fromkeys(each.place for each in wanted):
        rows = [facts.probed(place, each.probe, each.images) for each in wanted if each.place == place]
        if any(each is None for each in rows):
            yield Finding(place.text, "not_run", "The run has not finished it; give the same command again.")
            continue
        known = {row.sample for each in rows for row in each or ()}
        survive = {row.sample for each in rows for row in each or () if row.outcome}
        high = proportion(len(survive), len(known)).high
        text = f"{len(survive)} of {len(known)} stored errors are errors in a picture file of 8 bits, too."
        numbers = {"survive": len(survive), "errors": len(known)}
        lost = tuple(sorted(known - survive))
        yield Finding(place.text, "warning" if high < _HALF else "ok", text, lost, numbers)


RULE = Rule(
    name="eight_bits",
    title="Errors survive a picture file",
    level="standard",
    severity="minor",
    note="errors vanish in 8 bits",
    remedy="For adversarial pictures as files take robustkit attack, which searches among the 256 levels.",
    judge=judge,
    probes=(RoundingProbe(),),
)
