"""Margins: differences of logits that are positive at errors, and zero at the decision boundary."""

from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.ball import Ball
from robustkit.primitives.protocol import MultiGradientSeen, Trials
from robustkit.primitives.rows import along

DUAL = {"Linf": 1.0, "L2": 2.0, "L1": torch.inf}  # orders of the dual norms
SHORTEST = 1e-12  # floor of a length that is divided by
# Length, in units of the input, by which every step of DeepFool is longer (authors' code): where the boundary is near,
# the overshoot alone would be lost in rounding.
_FURTHER = 1e-4


def error_margin(logits: Tensor, trials: Trials) -> Tensor:
    """`[B]` a margin that is positive at errors only.

    Untargeted: the largest wrong logit minus that of the true class. With a `loss_target`: that class's logit minus
    that of the true class. With a `target`, which must be reached: its logit minus the largest of all other classes,
    because a third class may be above the true one.
    """
    aimed = losses.loss("margin")(logits, trials.y, trials.loss_target)
    if not losses.any_class(trials.target):  # saves time and changes no row's value
        return aimed
    return torch.where(trials.target >= 0, -losses.margin(logits, trials.target.clamp(min=0)), aimed)


def class_margins(logits: Tensor, trials: Trials, count: int) -> Tensor:
    """`[B, count]` margins of the likeliest wrong classes over the true one, likeliest first; fewer with few classes.

    Rows that aim at one class have its margin in every column.
    """
    y = trials.y.unsqueeze(1)
    margins = logits - logits.gather(1, y)
    count = min(count, logits.shape[1] - 1)
    wrong = losses.without(logits.detach(), trials.y).topk(count, 1).indices
    aimed = error_margin(logits, trials).unsqueeze(1)
    aims = ((trials.loss_target >= 0) | (trials.target >= 0)).unsqueeze(1)
    return torch.where(aims, aimed, margins.gather(1, wrong))


class NearBoundary(NamedTuple):
    """A decision boundary, linearised at the query."""

    margin: Tensor  # [B] at the query
    grad: Tensor  # [B, *S] of the margin


def nearest_boundary(seen: MultiGradientSeen, ball: Ball) -> NearBoundary:
    """The nearest of the linearised boundaries to several classes."""
    length = seen.grads.flatten(2).norm(p=DUAL[ball.norm], dim=2).clamp(min=SHORTEST)
    chosen = (seen.losses.abs() / length).argmin(1)
    rows = torch.arange(len(chosen), device=chosen.device)
    return NearBoundary(seen.losses[rows, chosen], seen.grads[rows, chosen])


def beyond_boundary(ball: Ball, query: Tensor, seen: MultiGradientSeen, overshoot: float) -> Tensor:
    """`[B, *S]` the end of DeepFool's step: just beyond the nearest linearised boundary, clipped to valid images.

    Args:
        ball: its norm measures distances.
        query: `[B, *S]` where the step begins.
        seen: the answer of the model there.
        overshoot: how far the step goes beyond the boundary, as a share of the distance to it.
    """
    margin, grad = nearest_boundary(seen, ball)
    slope = grad.flatten(1).norm(p=DUAL[ball.norm], dim=1).clamp(min=SHORTEST)
    length = (1 + overshoot) * (margin.abs() / slope + _FURTHER)
    return (query + along(length, grad) * ball.steepest(grad, query)).clamp(0, 1)
