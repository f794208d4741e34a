"""Whether the gradient says what a small step in a random direction from the clean image changes.

A step along a gradient shows what the gradient points to. What it leaves out, or reverses, at some values of the image
shows in a random direction, in which all values move. The gradient is that of the step's middle: at the clean image
itself equal values (a background of zeros) can lie on the kink of a max pooling, where no gradient says what happens.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from robustkit.classifier.session import Session
from robustkit.engine.margins import Margins, seen_once
from robustkit.primitives import noise
from robustkit.primitives.ball import Ball
from robustkit.primitives.measure import Measure
from robustkit.primitives.protocol import State, TrialCost
from robustkit.primitives.trust import RandomStep

COST = TrialCost(2, 1)  # the middle of the step, with its gradient, and its end
_SHARE = {"Linf": 0.1, "L2": 0.1, "L1": 0.3}  # of the radius
_DRAW = 1  # number 0 moves the values without a gradient


def random_steps(session: Session, attack: Margins, states: State, logits: Tensor) -> list[RandomStep]:
    """What a random step from each clean image shows.

    Args:
        session: of the model.
        attack: in the threat model that is meant.
        states: `[n]` rows, whose trials count.
        logits: `[n, K]` at the clean images.
    """
    alone = replace(attack, measure=Measure(1))
    trials = states.trial
    ends = _ends(attack.ball, trials.x, trials.key)
    ways = ends.double() - trials.x.double()
    middles = (trials.x.double() + ways / 2).to(trials.x)
    seen = seen_once(session, alone, State(trials, middles, torch.zeros_like(trials.y), states.done))
    pairs = torch.cat([trials.y.unsqueeze(1), alone.likeliest(seen.logits, trials.y)], 1)
    clean, middle, end = (
        each.gather(1, pairs).double() for each in (logits, seen.logits, session.logits(attack.whole(trials, ends)))
    )
    found = []
    # One row at a time, so that no sum depends on how many rows there are.
    for row, way in enumerate(ways):
        moves = way * seen.grad[row]
        leads = [float(each[row, 0] - each[row, 1]) for each in (clean, middle, end)]
        found.append(
            RandomStep.of(
                float(moves.sum()), math.sqrt(float(moves.square().sum())), leads[0] - leads[1], leads[0] - leads[2],
                size=float(middle[row].abs().max()),
            )
        )  # fmt: skip
    return found


def _ends(ball: Ball, x: Tensor, keys: Tensor) -> Tensor:
    """`[n, *S]` points of the box on random sides of each value, all values equally far."""
    count = x[0].numel()
    pace = _SHARE[ball.norm] * ball.eps / {"Linf": 1.0, "L2": math.sqrt(count), "L1": count}[ball.norm]
    way = noise.signs(keys, _DRAW, x.shape[1:]).to(x) * pace
    outside = (x + way < 0) | (x + way > 1)
    return (x + torch.where(outside, -way, way)).clamp(0, 1)
