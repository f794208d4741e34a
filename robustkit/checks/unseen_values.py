"""Values at which the gradient is exactly zero do not move the logits: else attacks with gradients do not see them.

A random move to the border of the ball, once of all values and once of those without a gradient alone. In ordinary
networks these move the logits by some per cent of what all do, at most; behind a threshold, a mask or pooling of the
image by a tenth to a half.
"""

import torch

from robustkit.checks.check import Rule
from robustkit.checks.image_share import judge_share
from robustkit.checks.local_loss import LocalLoss, LocalProbe, Measured
from robustkit.primitives.protocol import TrialCost

_STREAM = 0x554E5345
_SEEN = 0.1  # of the response of the logits


def _moved(local: LocalLoss) -> Measured:
    """Whether values without a gradient move the logits by a tenth of what all values do, or more."""
    x, unseen = local.trials.x, local.gradient() == 0
    partly = ~unseen.flatten(1).all(1)  # where nothing has a gradient, other checks say so
    end = local.end(local.random_direction(0), local.radius)
    still, far, there = (local.logits(each).double() for each in (x, end, torch.where(unseen, end, x)))
    response = (far - still).norm(dim=1)
    share = torch.where(partly & (response > 0), (there - still).norm(dim=1) / response, 0.0)
    return Measured(share >= _SEEN, share)


PROBE = LocalProbe("random moves of the values without a gradient", _STREAM, TrialCost(4, 1), _moved)
RULE = Rule(
    name="unseen_values",
    title="Pixel values with zero gradient do not change the logits",
    level="standard",
    severity="invalidating",
    note="gradients do not see all values of the image",
    remedy="Add --attack square to robustkit evaluate, and find the threshold or mask with robustkit diagnose.",
    judge=judge_share(
        PROBE,
        "the values at which the gradient is exactly zero move the logits by a tenth of what all values do, or more",
        "No gradient reaches the image.",
    ),
    probes=(PROBE,),
)
