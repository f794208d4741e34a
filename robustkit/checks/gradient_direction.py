"""A step along the gradient raises the loss more than steps of the same length in random directions.

Where it does not, an attack that follows the gradient is a random search at a higher price.
"""

from collections.abc import Iterator

import torch

from robustkit.checks.check import Rule
from robustkit.checks.facts import ModelFacts, ProbeRecord
from robustkit.checks.image_share import judge_share
from robustkit.checks.local_loss import LocalLoss, wanted_on_correct
from robustkit.checks.probing import ProbeBench, RunAttacks, Wanted
from robustkit.primitives.protocol import TrialCost

_DIRECTIONS = 10
_STREAM = 0x44495245
_PROBE = f"gradient against {_DIRECTIONS} random directions"


class DirectionProbe:
    """For each image, how many of the random steps raise the loss as much as the step along the gradient."""

    def wanted(self, facts: ModelFacts) -> Iterator[Wanted]:
        return wanted_on_correct(facts, _PROBE)

    def at_most(self, wanted: Wanted, attacks: RunAttacks) -> TrialCost:
        return TrialCost(2 + _DIRECTIONS, 1)

    def run(self, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
        local = LocalLoss.around(bench, wanted, _STREAM)
        rise = local.at(local.end(local.gradient(), local.radius))
        draws = [local.at(local.end(local.random_direction(draw), local.radius)) for draw in range(_DIRECTIONS)]
        # A gradient that is NaN gives a loss that no comparison holds for: then random steps count as better.
        better = (~(torch.stack(draws) < rise)).sum(0).tolist()
        for number, count in zip(wanted.images, better, strict=False):
            yield bench.record(wanted, number, 2 * count > _DIRECTIONS, count, 2 + _DIRECTIONS, 1)


PROBE = DirectionProbe()
RULE = Rule(
    name="gradient_direction",
    title="The gradient is better than a random direction",
    level="standard",
    severity="invalidating",
    note="gradients are no better than chance",
    remedy="Find the layer with robustkit diagnose.",
    judge=judge_share(
        PROBE,
        "a step along the gradient raises the loss less than most random steps of the same length",
        "no gradient reaches the image: autograd does not see that the logits depend on it.",
        "failed",
    ),
    probes=(PROBE,),
)
