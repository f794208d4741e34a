"""A step along the gradient raises the loss more than steps of the same length in random directions.

Where it does not, an attack that follows the gradient is a random search at a higher price.
"""

import torch

from robustkit.checks.check import Rule
from robustkit.checks.image_share import judge_share
from robustkit.checks.local_loss import LocalLoss, LocalProbe, Measured
from robustkit.primitives.protocol import TrialCost

_DIRECTIONS = 10
_STREAM = 0x44495245


def _better(local: LocalLoss) -> Measured:
    """How many of the random steps raise the loss as much as the step along the gradient."""
    rise = local.at(local.end(local.gradient(), local.radius))
    draws = [local.at(local.end(local.random_direction(draw), local.radius)) for draw in range(_DIRECTIONS)]
    # A gradient that is NaN gives a loss that no comparison holds for: then random steps count as better.
    better = (~(torch.stack(draws) < rise)).sum(0)
    return Measured(2 * better > _DIRECTIONS, better)


PROBE = LocalProbe(f"gradient against {_DIRECTIONS} random directions", _STREAM, TrialCost(2 + _DIRECTIONS, 1), _better)
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
