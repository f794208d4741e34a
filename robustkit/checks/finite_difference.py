"""A short step along the gradient changes the loss as the gradient says: else the backward pass is not the forward's.

Central differences over a tenth of the radius. Between a half and twice of what is predicted is right; a smooth or
piecewise linear network is far inside of that. Straight-through estimators, gradients that were cut or scaled, and
functions that jump are outside; so are waves so fast that the gradient leads nowhere within a tenth of the radius.
"""

import torch
from torch import Tensor

from robustkit.checks.check import Rule
from robustkit.checks.image_share import judge_share
from robustkit.checks.local_loss import ROUNDING, LocalLoss, LocalProbe, Measured
from robustkit.primitives.protocol import TrialCost

_STREAM = 0x44494646
_STEP = 1 / 10  # of the radius
_FACTOR = 2.0


def differences(local: LocalLoss, gradient: Tensor, step: float) -> Measured:
    """Central differences along a gradient, against what it says.

    Args:
        local: the loss.
        gradient: `[n, *S]` its gradient at the images.
        step: either way, as a share of the radius.

    Returns:
        `[n]` bool, whether the change is outside of what the gradient and rounding allow, and `[n]` float64 the ratio.
    """
    up, down = (local.end(sign * gradient, step * local.radius) for sign in (1, -1))
    predicted = (gradient * (up - down)).flatten(1).double().sum(1)
    high, low = local.at(up).double(), local.at(down).double()
    return _outside(predicted, high - low, torch.maximum(high.abs(), low.abs()))


def _outside(predicted: Tensor, obtained: Tensor, size: Tensor) -> Measured:
    """Whether the change is outside of what the prediction and rounding allow, and their ratio where it is a number."""
    slack = ROUNDING * size.clamp(min=1)
    inside = (obtained >= predicted / _FACTOR - slack) & (obtained <= predicted * _FACTOR + slack)
    ratio = torch.where(predicted > slack, obtained / predicted, torch.ones_like(predicted))
    return Measured(~inside, ratio.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))


PROBE = LocalProbe(
    "gradient against finite differences over a tenth", _STREAM, TrialCost(3, 1),
    lambda local: differences(local, local.gradient(), _STEP),
)  # fmt: skip
RULE = Rule(
    name="finite_difference",
    title="Short steps do what the gradient says",
    level="standard",
    severity="invalidating",
    note="gradients are not those of the loss",
    remedy="Find the layer whose backward pass differs from its forward pass with robustkit diagnose.",
    judge=judge_share(
        PROBE,
        "a step of a tenth of the radius changes the loss by less than half or more than twice of what the gradient "
        "says",
        "No gradient reaches the image.",
    ),
    probes=(PROBE,),
)
