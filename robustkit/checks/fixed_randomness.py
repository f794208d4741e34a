"""A randomized model with its randomness fixed is a usual one: an attack without a bound must break every image of it.

Carlini et al. 2019, arXiv:1902.06705, ask that the attack succeed if the randomness is fixed: where it does not, it is
not the randomness that stops it. Each query is sent alone, after the generators were set to the same seed. How many
images stand within the radius then says nothing about the randomized model, so the attack gets no bound.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import ModelFacts, ProbeRecord
from robustkit.checks.probing import ProbeBench, RunAttacks, Wanted
from robustkit.checks.unbounded import EVERYTHING, PROBE, judged
from robustkit.classifier.generators import reseed
from robustkit.classifier.logits import logits_of
from robustkit.engine.jobs import Job
from robustkit.engine.scheduler import run
from robustkit.primitives import registry
from robustkit.primitives.protocol import TrialCost

_COUNT = 12
_ATTACK = "pgd:steps=100,random_start=false"


class FixedRandomness(nn.Module):
    """A model whose every answer is drawn from the same seed, row by row."""

    def __init__(self, model: nn.Module, seed: int) -> None:
        super().__init__()
        self.model, self.seed = model, seed

    def forward(self, x: Tensor) -> Tensor:
        """`[n, K]` logits."""
        rows = []
        for row in torch.split(x, 1):
            reseed(self.seed)
            rows.append(logits_of(self.model(row), row))
        return torch.cat(rows)


class FixedProbe:
    """For each image, whether the attack breaks it."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        if facts.randomized and not facts.smoothed:
            yield Wanted(EVERYTHING, f"{_ATTACK} with fixed randomness", facts.drawn(facts.correct, _COUNT))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return PROBE.at_most(wanted._replace(probe=_ATTACK), attacks)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        batch, seed = bench.images(wanted.images), bench.facts.seed
        method = registry.build(_ATTACK, *wanted.place)
        fixed = replace(bench.classifier, model=FixedRandomness(bench.classifier.model, seed).eval())
        jobs = [
            Job(number, image, label, (-1,))
            for number, image, label in zip(batch.numbers, batch.x, batch.y.tolist(), strict=True)
        ]
        with fixed.session(batch.x[:1], seed) as session:
            for outcome in run(session, method, jobs, slots=1, seed=seed):
                yield bench.record(wanted, outcome.sample, outcome.success, outcome.queries, outcome.forwards,
                                   outcome.backwards)  # fmt: skip


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding about the model."""
    wanted = next(FixedProbe().wanted(facts), None)
    if wanted is None:
        yield Finding("", "not_applicable", "The model is deterministic, or is smoothed.")
        return
    refused = "Its randomness cannot be fixed, or no gradient reaches the image."
    yield judged(facts, wanted, "With fixed randomness and without a bound", refused)


RULE = Rule(
    name="fixed_randomness",
    title="With fixed randomness, an attack without a bound breaks every image",
    level="full",
    severity="invalidating",
    note="gradients are masked even with fixed randomness",
    remedy="Not only the randomness hides the gradients: find the layer with robustkit diagnose.",
    judge=judge,
    probes=(FixedProbe(),),
)
