"""Whether the gradient says what a small step in a random direction from the clean image changes.

A step along a gradient shows what the gradient points to. What it leaves out, or reverses, at some values of the image
shows in a random direction, in which any value may move. The gradient is that of the step's middle: at the clean image
itself equal values (a background of zeros) can lie on the kink of a max pooling, where no gradient says what happens.

Along a step of that size a rough network turns, too. So a step that the gradient does not explain is taken again, much
shorter: of a gradient that is right the error becomes smaller, of one that is wrong it stays.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.classifier.session import Session
from robustkit.engine.margins import Margins, seen_once
from robustkit.primitives import noise
from robustkit.primitives.ball import Ball
from robustkit.primitives.measure import Measure
from robustkit.primitives.protocol import State, TrialCost
from robustkit.primitives.trust import RandomStep

_COST = TrialCost(2, 1)  # the middle of the step, with its gradient, and its end
_OF_REJECTION = TrialCost(3, 0)  # both again, and the clean image, where a model rejects
# Each value that moves moves by so much if half of the radius allows it for that many values, and for 20 at least; by
# more if a tenth of the radius, spent on all values, is more. Smaller steps are lost where images have 256 levels.
_PACE, _MOST, _LEAST, _FEWEST = 0.02, 0.5, 0.1, 20
SHORTER = 1 / 64  # of the step
_SIDES, _CHOICE = 1, 2  # draws of noise; number 0 moves the values without a gradient


class Walked(NamedTuple):
    """A random step from one clean image, with what it cost."""

    step: RandomStep
    cost: TrialCost


def random_steps(session: Session, attack: Margins, states: State, logits: Tensor, *, again: bool) -> list[Walked]:
    """What a random step from each clean image shows.

    Args:
        session: of the model.
        attack: in the threat model that is meant.
        states: `[n]` rows, whose trials count.
        logits: `[n, K]` at the clean images.
        again: whether a step that the gradient does not explain is taken again, shorter; that which errs less counts.
    """
    alone = replace(attack, measure=Measure(1))
    x = states.trial.x.double()
    ends = _ends(attack.ball, states.trial.x, states.trial.key)
    cost = _COST + _OF_REJECTION if session.rejects else _COST
    walked = [Walked(step, cost) for step in _walked(session, alone, states, logits, ends)]
    rows = [row for row, each in enumerate(walked) if again and each.step.unexplained]
    if rows:
        chosen = torch.tensor(rows, device=ends.device)
        nearer = (x + (ends.double() - x) * SHORTER).to(ends)
        shorter = _walked(session, alone, states.take(chosen), logits[chosen], nearer[chosen])
        for row, step in zip(rows, shorter, strict=True):
            walked[row] = Walked(walked[row].step.or_rather(step), cost + cost)
    return walked


def _walked(session: Session, attack: Margins, states: State, logits: Tensor, ends: Tensor) -> list[RandomStep]:
    """What the steps from clean images to some points `[n, *S]` show."""
    trials = states.trial
    ways = ends.double() - trials.x.double()
    middles = (trials.x.double() + ways / 2).to(trials.x)
    seen = seen_once(session, attack, State(trials, middles, torch.zeros_like(trials.y), states.done))
    pairs = torch.cat([trials.y.unsqueeze(1), attack.likeliest(seen.logits, trials.y)], 1)
    # Of a model that rejects, all three with the weights of the middle, where the gradient is.
    points = [attack.whole(trials, each) for each in (trials.x, middles, ends)]
    at = session.logits_for_attacker(points if session.rejects else points[2:], trials.y, points[1])
    answers = at if session.rejects else [logits, seen.logits, *at]
    clean, middle, end = (each.gather(1, pairs).double() for each in answers)
    leads = [(each[:, 0] - each[:, 1]).tolist() for each in (clean, middle, end)]
    found = []
    # One row at a time, so that no sum depends on how many rows there are.
    for moves, before, half, after, size in zip(ways * seen.grad, *leads, middle.abs().amax(1).tolist(), strict=True):
        deviation = math.sqrt(float(moves.square().sum()))
        found.append(RandomStep.of(float(moves.sum()), deviation, before - half, before - after, size))
    return found


def _ends(ball: Ball, x: Tensor, keys: Tensor) -> Tensor:
    """`[n, *S]` points of the box, to which some values chosen at random moved equally far, each to a random side."""
    count = x[0].numel()
    moved, pace = _size(ball, count)
    way = noise.signs(keys, _SIDES, x.shape[1:]).to(x) * pace
    if moved < count:
        places = noise.uniform(keys, _CHOICE, [count]).argsort(dim=1, stable=True)[:, :moved]
        chosen = torch.zeros_like(x).flatten(1).scatter(1, places, 1.0).reshape(x.shape)
        way = way * chosen
    outside = (x + way < 0) | (x + way > 1)
    return (x + torch.where(outside, -way, way)).clamp(0, 1)


def _size(ball: Ball, count: int) -> tuple[int, float]:
    """How many of so many values move, and how far."""
    power = {"Linf": 0.0, "L2": 0.5, "L1": 1.0}[ball.norm]  # of the number of values, by which a radius is divided
    pace = max(_PACE, _LEAST * ball.eps / count**power)
    affordable = count if power == 0 else int((_MOST * ball.eps / pace) ** (1 / power))
    moved = min(count, max(_FEWEST, affordable))
    return moved, min(pace, _MOST * ball.eps / moved**power)
