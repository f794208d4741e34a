"""A tiny change of the image changes the loss by a tiny share of what a change of the radius does.

Pintor et al. 2022, arXiv:2106.09947, call the opposite unstable predictions, and compare a change with the loss itself,
which is zero at the boundary. Ours compares random steps of a 64th of the radius with random steps of the radius: in a
smooth function the ratio is 1/64, in a random walk 1/8, in noise 1. From a quarter on no step size is small enough for
an attack to follow the gradient.
"""

import torch

from robustkit.checks.check import Rule
from robustkit.checks.image_share import judge_share
from robustkit.checks.local_loss import ROUNDING, LocalLoss, LocalProbe, Measured
from robustkit.primitives.protocol import TrialCost

_STREAM = 0x554E5354
_DIRECTIONS = 8
_SHORT = 1 / 64  # of the radius
_ROUGH = 0.25


def _rough(local: LocalLoss) -> Measured:
    """Whether short random steps change the loss by more than a quarter of what long ones do."""
    clean = local.at(local.trials.x).double()
    short, long = (
        torch.stack([
            (local.at(local.end(local.random_direction(draw), share * local.radius)).double() - clean).abs()
            for draw in range(_DIRECTIONS)
        ]).sum(0)
        for share in (_SHORT, 1.0)
    )  # fmt: skip
    slack = _DIRECTIONS * ROUNDING * clean.abs().clamp(min=1)
    ratio = (short / long.clamp(min=1e-12)).clamp(max=1e6)
    return Measured(short > _ROUGH * long + slack, ratio)


PROBE = LocalProbe(
    f"loss at 1/64 of the radius against the radius, {_DIRECTIONS} random directions", _STREAM,
    TrialCost(1 + 2 * _DIRECTIONS, 0), _rough,
)  # fmt: skip
RULE = Rule(
    name="unstable_loss",
    title="The loss is stable under tiny changes",
    level="standard",
    severity="invalidating",
    note="the loss is unstable",
    remedy="Gradients of such a loss predict nothing: find the layer with robustkit diagnose.",
    judge=judge_share(
        PROBE,
        "a random step of a 64th of the radius changes the loss by more than a quarter of what a step of the radius "
        "does",
        "The loss around the images is not finite.",
    ),
    probes=(PROBE,),
)
