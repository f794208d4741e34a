"""A step along the gradient raises the loss more than steps of the same length in random directions.

Where it does not, an attack that follows the gradient is a random search at a higher price.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from robustkit.checks.check import Finding, Rule, graded, not_run
from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat
from robustkit.checks.probing import REFUSED, ProbeBench, RunAttacks, Wanted
from robustkit.checks.survivors import SEARCHED
from robustkit.engine.nearness import gradient_at
from robustkit.primitives import noise, registry
from robustkit.primitives.protocol import Attack, TrialCost, Trials
from robustkit.statistics.intervals import proportion

_COUNT = 32
_DIRECTIONS = 10
_STREAM = 0x44495245
_PROBE = f"gradient against {_DIRECTIONS} random directions"
_NOTED, _WRONG = 0.05, 0.2  # lower end of the share of images where random directions are better


class DirectionProbe:
    """For each image, how many of the random steps raise the loss as much as the step along the gradient."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        for place in _places(facts):
            yield Wanted(place, _PROBE, facts.drawn(facts.correct, _COUNT))

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return TrialCost(2 + _DIRECTIONS, 1)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        batch, seed = bench.images(wanted.images), bench.facts.seed + _STREAM
        key = noise.keys(seed, torch.tensor(list(batch.numbers), dtype=torch.int64)).to(batch.x.device)
        none = torch.full_like(key, -1)
        trials = Trials(batch.x, batch.y.to(key), none, none, key, torch.zeros_like(key))
        attack = registry.build("fgsm", wanted.place.norm, wanted.place.eps_text)
        rise = _losses(bench, attack, trials, gradient_at(bench.session, attack, trials))
        draws = [
            _losses(bench, attack, trials, noise.normal(key, draw, batch.x.shape[1:]).to(batch.x))
            for draw in range(_DIRECTIONS)
        ]
        better = (torch.stack(draws) >= rise).sum(0).tolist()
        for number, count in zip(batch.numbers, better, strict=True):
            yield bench.record(wanted, number, 2 * count > _DIRECTIONS, count, 2 + _DIRECTIONS, 1)


def _losses(bench: ProbeBench, attack: Attack, trials: Trials, direction: Tensor) -> Tensor:
    """`[n]` the loss at the end of a step of the radius' length."""
    ends = attack.ball.climb(trials.x, trials.x, direction, attack.ball.eps)
    return attack.objective(bench.session.logits(ends), trials)


def _places(facts: ModelFacts) -> tuple[RunThreat, ...]:
    return facts.searchable if facts.deterministic and not facts.answers_only else ()


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat."""
    if facts.answers_only:
        yield Finding("", "not_applicable", "The model gives no gradients.")
        return
    places = _places(facts)
    if not places:
        yield Finding("", "not_applicable", SEARCHED)
    for place in places:
        rows = facts.probed(place, _PROBE, facts.drawn(facts.correct, _COUNT))
        if rows is None:
            yield not_run(place.text)
            continue
        if any(row.value == REFUSED for row in rows):
            text = "no gradient reaches the image: autograd does not see that the logits depend on it."
            yield Finding(place.text, "invalid", text)
            continue
        worse = tuple(row.sample for row in rows if row.outcome)
        low = proportion(len(worse), len(rows)).low if rows else 0.0
        many = len(worse) > 1
        status = graded(invalid=many and low > _WRONG, warning=many and low > _NOTED)
        text = (
            f"on {len(worse)} of {len(rows)} images a step along the gradient raises the loss less than most random "
            "steps of the same length."
        )
        yield Finding(place.text, status, text, worse, {"worse": len(worse), "images": len(rows)})


RULE = Rule(
    name="gradient_direction",
    title="The gradient is better than a random direction",
    level="standard",
    severity="invalidating",
    note="gradients are no better than chance",
    remedy="Find the layer with robustkit diagnose.",
    judge=judge,
    probes=(DirectionProbe(),),
)
