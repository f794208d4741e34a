"""How near a point is to each wrong class, as the gradients see it.

The nearness ratio is the lead of the true class over a wrong class, divided by the most that the gradient predicts an
attack can still take away within the threat model. Above 1, no point of the ball would be in that class if the network
were linear from here on. Scaling the logits does not change the ratio. Whether the gradient is right is looked at, too:
at the point where it predicts most.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self

from robustkit.classifier.session import Session
from robustkit.engine.margins import Margins, seen_once
from robustkit.primitives import noise
from robustkit.primitives.protocol import MultiGradientSeen, State, Trials
from robustkit.primitives.reach import reach
from robustkit.primitives.trust import believable

_NEGLIGIBLE = 1e-6  # share of a prediction; float32 has 6e-8


class Nearness(NamedTuple):
    """How near a point is to the wrong classes."""

    ratio: float  # of the nearest class; infinite where nothing can be gained; 0 at the end of what a gradient predicts
    classes: tuple[int, ...]  # the measured classes, the nearest first
    ratios: tuple[float, ...]  # of these classes, as their gradients predict
    predicted: float  # how much of the nearest class's lead the gradient says can still be taken away
    obtained: float  # how much is taken away where the gradient says that it is most
    at_clean: float | None = None  # `believed` at the clean image; None if that was not measured
    unseen: float | None = None  # how much of the lead values without a gradient move, either way; None: not measured

    @property
    def trusted(self) -> bool:
        """Whether the gradient may be believed."""
        return believable(self.predicted, self.obtained, self.unseen or 0.0)

    @property
    def believed(self) -> float:
        """The ratio; 0 where the gradient may not be believed, so that the image counts as near."""
        return self.ratio if self.trusted else 0.0


def measured(session: Session, attack: Margins, states: State, points: Tensor) -> list[Nearness]:
    """The nearness of each row's point, from one query and a forward pass; as many again for a clean image.

    Args:
        session: of the model.
        attack: in the threat model that is meant.
        states: `[n]` rows, whose trials count.
        points: `[n, *S]` in ball and box.
    """
    near = _at(session, attack, states, points, unseen=attack.unseen and attack.norm == "Linf")
    rows = [row for row, each in enumerate(near) if each.trusted and each.ratio < attack.clean_below]
    if rows:
        some = states.take(torch.tensor(rows, device=points.device))
        for row, clean in zip(rows, _at(session, attack, some, some.trial.x), strict=True):
            near[row] = near[row]._replace(at_clean=clean.believed)
    return near


def _at(session: Session, attack: Margins, states: State, points: Tensor, *, unseen: bool = False) -> list[Nearness]:
    trials = states.trial
    seen = seen_once(session, attack, State(trials, points, torch.zeros_like(trials.y), states.done))
    assert isinstance(seen, MultiGradientSeen)
    # One row at a time, so that no sum depends on how many rows there are.
    rows = zip(
        trials.x, points, -seen.losses.double(), attack.likeliest(seen.logits, trials.y), seen.grads, strict=True
    )
    searched = [_Row.of(attack, *row) for row in rows]
    ends = attack.ball.project(trials.x, torch.stack([row.end for row in searched]).to(points))
    leads = _leads(session, attack, trials, ends)
    near = [row.nearness(lead) for row, lead in zip(searched, leads, strict=True)]
    if not unseen:
        return near
    moved = _leads(session, attack, trials, _without_gradient(attack, trials, points, (seen.grads == 0).all(1)))
    effects = [abs(float(row.leads[0] - lead[row.classes[0]])) for row, lead in zip(searched, moved, strict=True)]
    return [each._replace(unseen=effect) for each, effect in zip(near, effects, strict=True)]


def _leads(session: Session, attack: Margins, trials: Trials, points: Tensor) -> Tensor:
    """`[n, K]` float64 of the true class over each."""
    logits = session.logits(attack.whole(trials, points))
    return (logits.gather(1, trials.y.unsqueeze(1)) - logits).double()


def _without_gradient(attack: Margins, trials: Trials, points: Tensor, unseen: Tensor) -> Tensor:
    """`[n, *S]` the points, with random ends of the ball in place of `unseen` values `[n, *S]`; in Linf."""
    x, ball = trials.x, attack.ball
    return torch.where(unseen, ball.climb(x, x, noise.normal(trials.key, 0, x.shape[1:]).to(x), ball.eps), points)


class _Row(NamedTuple):
    """One row's classes, the nearest first."""

    classes: Tensor  # [C]
    leads: Tensor  # [C] float64 of the true class over them
    predicted: Tensor  # [C] float64 how much of them can be taken away
    end: Tensor  # [*S] where the gradient of the nearest class says that it is most
    swing: float  # how much this gradient predicts from where it says that it is least

    @classmethod
    def of(cls, attack: Margins, x: Tensor, point: Tensor, leads: Tensor, classes: Tensor, grads: Tensor) -> Self:
        gains, ends = reach(attack.ball, x, point, grads)
        order = torch.tensor(sorted(range(len(classes)), key=_ratios(leads, gains).__getitem__), device=x.device)
        nearest = order[:1]
        fall, _ = reach(attack.ball, x, point, -grads[nearest])
        swing = float(gains[nearest] + fall)
        return cls(classes[order], leads[order], gains[order], ends[nearest[0]], swing)

    def nearness(self, end: Tensor) -> Nearness:
        """With `[K]` the leads where the nearest class's gradient ends."""
        nearest = self.classes[0]
        obtained = float(self.leads[0] - end[nearest])
        ratios = _ratios(self.leads, self.predicted)
        ratio = min(ratios[0], _ratios(self.leads[:1], torch.tensor([obtained]))[0])
        found = Nearness(ratio, tuple(self.classes.tolist()), tuple(ratios), float(self.predicted[0]), obtained)
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
