"""How near a point is to each wrong class, as the gradients see it.

The nearness ratio is the lead of the true class over a wrong class, divided by the most that the gradient predicts an
attack can still take away within the threat model. Above 1, no point of the ball would be in that class if the network
were linear from here on. Scaling the logits does not change the ratio. Whether the gradient is right is looked at, too:
at the point where it predicts most.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self

from robustkit.classifier.logit_sizes import units
from robustkit.classifier.session import Session
from robustkit.engine.margins import Margins, seen_once
from robustkit.engine.random_step import SHORTER, random_steps
from robustkit.primitives import noise
from robustkit.primitives.measure import Measure
from robustkit.primitives.protocol import MultiGradientSeen, State, TrialCost
from robustkit.primitives.reach import along, farthest, reach
from robustkit.primitives.trust import CleanGradient, Gain, believable

_STEP, _WAY = (0.1, 0.01), (1.0, 0.05)  # shares of the way, and the most that a value moves there in L1
_NEGLIGIBLE = 1e-6  # share of a prediction; float32 has 6e-8
_VANISHING = 1e-4  # share of the margin that values predict to lose, all of them and over their whole range


class Nearness(NamedTuple):
    """How near a point is to the wrong classes."""

    ratio: float  # of the nearest class; infinite where nothing can be gained; 0 at the end of what a gradient predicts
    classes: tuple[int, ...]  # the measured classes, the nearest first
    ratios: tuple[float, ...]  # of these classes, as their gradients predict
    predicted: float  # how much of the nearest class's lead the gradient says can still be taken away
    obtained: float  # how much is taken away where the gradient says that it is most
    at_clean: float | None = None  # `believed` at the clean image; None if that was not measured
    unseen: float | None = None  # how much of the lead values without a gradient move, either way; None: not measured
    clean_gradient: CleanGradient | None = None  # None if it was not looked at
    cost: TrialCost = TrialCost(0, 0)  # of the measurement

    @property
    def trusted(self) -> bool:
        """Whether the gradient may be believed."""
        return believable(self.predicted, self.obtained, self.unseen or 0.0, self.clean_gradient or CleanGradient())

    @property
    def believed(self) -> float:
        """The ratio; 0 where the gradient may not be believed, so that the image counts as near."""
        return self.ratio if self.trusted else 0.0


def measured(session: Session, attack: Margins, states: State, points: Tensor) -> list[Nearness]:
    """The nearness of each row's point, and what else the attack measures.

    Args:
        session: of the model.
        attack: in the threat model that is meant.
        states: `[n]` rows, whose trials count.
        points: `[n, *S]` in ball and box.
    """
    measure = attack.measure
    best = _Queried(session, attack, states, points)
    near = best.nearness()
    if measure.unseen and attack.norm == "Linf":
        effects = best.gained(best.with_random_ends())
        near = [each._replace(unseen=abs(effect)) for each, effect in zip(near, effects, strict=True)]
    costs = best.costs
    trusted = [row for row, each in enumerate(near) if each.trusted]
    close = [row for row in trusted if near[row].ratio < measure.clean_below]
    far = [row for row in trusted if near[row].ratio >= measure.clean_below and measure.clean_gradient]
    for rows, classes in ((close, measure.classes), (far, 1)):
        if not rows:
            continue
        some = states.take(torch.tensor(rows, device=points.device))
        alike = Measure(classes, vanishing=measure.vanishing)
        clean = _Queried(session, replace(attack, measure=alike), some, some.trial.x)
        if rows is close:
            for row, found in zip(rows, clean.nearness(), strict=True):
                near[row] = near[row]._replace(at_clean=found.believed)
        if measure.clean_gradient:
            for row, gradient in zip(rows, clean.gradients(measure), strict=True):
                near[row] = near[row]._replace(clean_gradient=gradient)
        for row, cost in zip(rows, clean.costs, strict=True):
            costs[row] += cost
    return [each._replace(cost=cost) for each, cost in zip(near, costs, strict=True)]


class AtClean(NamedTuple):
    """What was measured at a clean image."""

    predicted: float  # how much of the nearest class's lead the gradient says can be taken away
    gradient: CleanGradient
    right_nearby: bool  # whether a short step does not do what the gradient says, and a much shorter one does
    cost: TrialCost


def at_clean(session: Session, attack: Margins, states: State) -> list[AtClean]:
    """Whether gradients can be believed at the clean images of some rows `[n]`; the arguments of `measured`.

    Where the step along the gradient does not do what it says, a much shorter one may.
    """
    clean = _Queried(session, replace(attack, measure=Measure(1)), states, states.trial.x)
    gradients, predicted = clean.gradients(attack.measure), [float(row.predicted[0]) for row in clean.rows]
    shorter = clean.along_gradients(*(SHORTER * each for each in _STEP))
    least = map(CleanGradient.least, clean.sizes(), units(clean.logits))
    nearby = map(CleanGradient.right_nearby, gradients, shorter, least)
    return list(map(AtClean, predicted, gradients, nearby, clean.costs))


class _Queried:
    """Points, one of each row, with the gradients there."""

    def __init__(self, session: Session, attack: Margins, states: State, points: Tensor) -> None:
        self.session, self.attack, self.states, self.points = session, attack, states, points
        self.trials = states.trial
        seen = seen_once(session, attack, State(self.trials, points, torch.zeros_like(self.trials.y), states.done))
        assert isinstance(seen, MultiGradientSeen)
        # One row at a time, so that no sum depends on how many rows there are.
        classes = attack.likeliest(seen.logits, self.trials.y)
        rows = zip(self.trials.x, points, -seen.losses.double(), classes, seen.grads, strict=True)
        self.rows = [_Row.of(attack, *row) for row in rows]
        self.flat = (seen.grads == 0).all(1)  # [n, *S] the values without a gradient
        self.logits = seen.logits
        self.costs = [TrialCost(1, classes.shape[1])] * len(points)

    def gained(self, points: Tensor, numbers: Sequence[int] | None = None) -> list[float]:
        """How much of the lead over the nearest class is taken away at other points `[n, *S]`.

        Args:
            points: one for each row, or for each of some rows.
            numbers: of these rows.
        """
        numbers = range(len(self.rows)) if numbers is None else numbers
        trials = self.trials.take(torch.tensor(numbers, device=points.device))
        here = self.points[torch.tensor(numbers, device=points.device)]
        whole, near = (self.attack.whole(trials, each) for each in (points, here))
        (logits,) = self.session.logits_for_attacker([whole], trials.y, near)
        gains = []
        for number, label, row in zip(numbers, trials.y, logits, strict=True):
            self.costs[number] += TrialCost(1 + self.session.rejects, 0)
            nearest = self.rows[number].classes[0]
            gains.append(float(self.rows[number].leads[0] - (row[label] - row[nearest]).double()))
        return gains

    def nearness(self) -> list[Nearness]:
        """How near they are to the wrong classes."""
        # Under a mask the values that may move can matter little, and the gradient is right.
        vanishing = self.attack.measure.vanishing and self.attack.mask is None
        found = zip(self.rows, self.obtained, strict=True)
        return [row.nearness(gain, vanishing=vanishing) for row, gain in found]

    @cached_property
    def obtained(self) -> list[float]:
        """What is taken away where the gradient of the nearest class predicts most."""
        ends = torch.stack([row.end for row in self.rows]).to(self.points)
        return self.gained(self.attack.ball.project(self.trials.x, ends))

    def with_random_ends(self) -> Tensor:
        """`[n, *S]` the points, with random ends of the ball in place of values without a gradient; in Linf."""
        x, ball = self.trials.x, self.attack.ball
        moved = ball.climb(x, x, noise.normal(self.trials.key, 0, x.shape[1:]).to(x), ball.eps)
        return torch.where(self.flat, moved, self.points)

    def gradients(self, measure: Measure) -> list[CleanGradient]:
        """Whether the gradients can be believed, at clean images; with random steps, too, if these are measured."""
        predicted = [float(row.predicted[0]) for row in self.rows]
        whole = self.along_gradients(*_WAY) if self.attack.norm == "L1" else map(Gain, predicted, self.obtained)
        found = zip(
            predicted,
            self.along_gradients(*_STEP),
            whole,
            self._unseen(),
            self.sizes(),
            units(self.logits),
            strict=True,
        )
        gradients = [CleanGradient.of(*each) for each in found]
        if not measure.random_step:
            return gradients
        walked = random_steps(self.session, self.attack, self.states, self.logits, again=measure.shorter_step)
        self.costs = [cost + each.cost for cost, each in zip(self.costs, walked, strict=True)]
        return [each._replace(random=step) for each, (step, _) in zip(gradients, walked, strict=True)]

    def sizes(self) -> list[float]:
        """Of the two logits that matter: some networks give classes that are switched off a huge one."""
        nearest = torch.stack([row.classes[0] for row in self.rows])
        found: list[float] = self.logits.gather(1, torch.stack([self.trials.y, nearest], 1)).abs().amax(1).tolist()
        return found

    def along_gradients(self, share: float, most: float) -> list[Gain]:
        """What a share of the way along each gradient gains; in L1 a value moves by no more than `most`."""
        ball, pairs = self.attack.ball, zip(self.points, self.rows, strict=True)
        ends = torch.stack([along(ball, x, row.end, row.slope, share, most) for x, row in pairs]).to(self.points)
        ways = zip(ends.double() - self.points.double(), self.rows, strict=True)
        return list(map(Gain, [float((way * row.slope).sum()) for way, row in ways], self.gained(ends)))

    def _unseen(self) -> list[float]:
        """What is gained where the values without a gradient move; 0 where every value has one."""
        moved = [number for number, flat in enumerate(self.flat) if bool(flat.any())]
        gained = [0.0] * len(self.rows)
        if moved:
            ends = torch.stack([self._away_without_gradient(number) for number in moved]).to(self.points)
            for number, gain in zip(moved, self.gained(ends, moved), strict=True):
                gained[number] = gain
        return gained

    def _away_without_gradient(self, number: int) -> Tensor:
        """`[*S]` float64 a clean image whose values without a gradient moved to where they have room."""
        x = self.points[number]
        pace = noise.normal(self.trials.key[[number]], 0, x.shape).to(x)[0].abs() * self.flat[number]
        return farthest(self.attack.ball, x, torch.where(x < 0.5, pace, -pace).unsqueeze(0))[0]


class _Row(NamedTuple):
    """One row's classes, the nearest first."""

    classes: Tensor  # [C]
    leads: Tensor  # [C] float64 of the true class over them
    predicted: Tensor  # [C] float64 how much of them can be taken away
    end: Tensor  # [*S] float64 where the gradient of the nearest class says that it is most
    slope: Tensor  # [*S] this gradient
    swing: float  # how much this gradient predicts from where it says that it is least

    @classmethod
    def of(cls, attack: Margins, x: Tensor, point: Tensor, leads: Tensor, classes: Tensor, grads: Tensor) -> Self:
        gains, ends = reach(attack.ball, x, point, grads)
        order = torch.tensor(sorted(range(len(classes)), key=_ratios(leads, gains).__getitem__), device=x.device)
        nearest = order[:1]
        fall, _ = reach(attack.ball, x, point, -grads[nearest])
        swing = float(gains[nearest] + fall)
        return cls(classes[order], leads[order], gains[order], ends[nearest[0]], grads[nearest[0]], swing)

    def nearness(self, obtained: float, *, vanishing: bool = False) -> Nearness:
        """With what is taken away where the nearest class's gradient ends.

        Args:
            obtained: there.
            vanishing: whether a gradient that is next to zero predicts nothing, as one that is zero.
        """
        ratios = _ratios(self.leads, self.predicted)
        ratio = min(ratios[0], _ratios(self.leads[:1], torch.tensor([obtained], device="cpu"))[0])
        found = Nearness(ratio, tuple(self.classes.tolist()), tuple(ratios), float(self.predicted[0]), obtained)
        if vanishing and float(self.slope.double().abs().sum()) <= _VANISHING * abs(float(self.leads[0])):
            return found._replace(predicted=0.0)
        negligible = _NEGLIGIBLE * self.swing
        at_end = abs(found.predicted) <= negligible and abs(obtained) <= negligible + _NEGLIGIBLE * abs(self.leads[0])
        if found.trusted or not at_end or self.swing == 0:
            return found
        # The point is where the gradient says that it is most, as with one pixel free: rounding is all that is left of
        # the prediction. Nothing was gained on the way, so the image counts as near.
        return found._replace(ratio=0.0, predicted=negligible)


def _ratios(leads: Tensor, gains: Tensor) -> list[float]:
    # Rounded, so that the last bits of a sum decide nothing; a lead below zero is a point that is wrong already.
    pairs = zip(map(_rounded, leads.tolist()), map(_rounded, gains.tolist()), strict=True)
    return [max(lead, 0.0) / gain if gain > 0 else math.inf for lead, gain in pairs]


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
