"""Probes that query the model at stored adversarial examples, or at points near them: one forward pass for each."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat, StoredWitness
from robustkit.checks.probing import ProbeBench, RunAttacks, Wanted
from robustkit.engine.jobs import reached
from robustkit.primitives.protocol import TrialCost


class TriedExamples(NamedTuple):
    """What the examples of one threat showed."""

    tried: frozenset[int]  # images
    wrong: frozenset[int]  # those with a point that is misclassified


@dataclass(frozen=True)
class StoredExamplesProbe:
    """For each chosen example, whether the model misclassifies the point that is made of it.

    Args:
        chosen: the examples.
        named: what is done with one, with the attack that made it: examples of other attacks are another probe.
        point: `[C, H, W]` where the model is queried.
    """

    chosen: Callable[[ModelFacts], Iterable[StoredWitness]]
    named: Callable[[StoredWitness], str]
    point: Callable[[StoredWitness], NDArray[np.floating[Any]]] = lambda each: each.x_adv

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        for (place, probe), examples in self._examples(facts).items():
            yield Wanted(place, probe, tuple(sorted(examples)))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return TrialCost(1, 0)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        examples = self._examples(bench.facts)[wanted.place, wanted.probe]
        batch = bench.images(wanted.images)
        points = torch.stack([torch.from_numpy(self.point(examples[number]).copy()) for number in batch.numbers])
        labels = bench.session.clean_verdicts(points.to(batch.x), batch.numbers).labels.tolist()
        wrong = [reached(label, y, None) for label, y in zip(labels, batch.y.tolist(), strict=True)]
        for number, error in zip(batch.numbers, wrong, strict=True):
            yield bench.record(wanted, number, error, forwards=1)

    def tried(self, facts: ModelFacts) -> Iterator[tuple[RunThreat, TriedExamples | None]]:
        """What was found at each threat that has examples; None where rows are missing."""
        wanted = list(self.wanted(facts))
        for place in dict.fromkeys(each.place for each in wanted):
            parts = [facts.probed(place, each.probe, each.images) for each in wanted if each.place == place]
            rows = [row for part in parts if part is not None for row in part]
            known = TriedExamples(
                frozenset(row.sample for row in rows), frozenset(row.sample for row in rows if row.outcome)
            )
            yield place, None if None in parts else known

    def _examples(self, facts: ModelFacts) -> dict[tuple[RunThreat, str], dict[int, StoredWitness]]:
        """By threat and probe, then by image."""
        examples: dict[tuple[RunThreat, str], dict[int, StoredWitness]] = {}
        for each in self.chosen(facts) if facts.deterministic else ():
            key = RunThreat(each.norm, each.eps_text), self.named(each)
            examples.setdefault(key, {})[each.sample] = each
        return examples
