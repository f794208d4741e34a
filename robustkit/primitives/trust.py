"""When a gradient is believed: what it predicted against what happened."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

_MISSED = 2  # a gradient that predicts less than half of what happens is not believed
_BENT, _MISDIRECTS, _BACKFIRES = 0.25, -0.2, -0.5
_HIDDEN, _HIDDEN_AT_CLEAN = 0.1, 0.05
_WRONG, _STRAIGHT = 0.8, 0.5
_WRONG_TOGETHER, _STRAIGHT_TOGETHER = 0.25, 0.7  # of at least so many steps, none of which counts for more than 2:
_ENOUGH, _LARGEST = 20, 2.0
_ROUNDING = 1e-4  # of a logit: smaller changes are rounding, or of a network that hardly sees the image
_UNITS = 4  # by which rounding to 16 bits moves a lead: each of its logits, inside and at the end
_LOST = 1e-5  # of a logit: what a random step must change; rounding alone would make it look crooked, not wrong

# It says nothing of values that matter; a short step, or the whole way, from the clean image does not do what it says;
# a small random step does not; or it predicts nothing, or less than half of what happens.
Doubt = Literal["hides", "turns", "misdirects", "errs", "misses"]


class Gain(NamedTuple):
    """What moving along a gradient gains."""

    predicted: float
    obtained: float


class RandomStep(NamedTuple):
    """What a small random step from a clean image shows, in units of what such a step changes: a standard deviation."""

    error: float = 0.0  # how far the change is from what the gradient at its middle says
    bend: float = 0.0  # how far the change of its first half is from half of the change, twice

    @classmethod
    def of(cls, predicted: float, deviation: float, first_half: float, whole: float, size: float) -> "RandomStep":
        """What was found at one image.

        Args:
            predicted: what the whole step gains, as the gradient says.
            deviation: the standard deviation of that over the random directions.
            first_half: what the first half of it gains.
            whole: what it gains.
            size: of the logits of the two classes; a deviation below a hundred-thousandth of it says nothing, nor does
                a step that changes nothing at all.
        """
        if deviation <= _LOST * size or first_half == whole == 0:
            return cls()
        return cls(abs(whole - predicted) / deviation, abs(whole - 2 * first_half) / deviation)

    @property
    def wrong(self) -> bool:
        """Whether the logits change along a straight line by something else than the gradient says."""
        return self.surprising and self.bend < _STRAIGHT * self.error

    @property
    def crooked(self) -> bool:
        """Whether they change by something else, but not along a line: kinks and rounding do that, too."""
        return self.surprising and not self.wrong

    @property
    def lost(self) -> bool:
        """Whether the step was too small to say anything."""
        return self.error == self.bend == 0

    @property
    def surprising(self) -> bool:
        """Whether the change is more than 0.8 standard deviations from what the gradient says."""
        return self.error > _WRONG

    @property
    def unexplained(self) -> bool:
        """Whether it is more than a quarter of a deviation from it, which counts if it is so on many images."""
        return self.error > _WRONG_TOGETHER

    def or_rather(self, shorter: "RandomStep") -> "RandomStep":
        """A shorter step in the same direction, if it says something and errs less; otherwise this one."""
        return shorter if not shorter.lost and shorter.error < self.error else self


def together(steps: Sequence[RandomStep]) -> RandomStep:
    """The root mean squares of the errors and bends of several images' steps; nothing if they are too few to say it."""
    told = [step for step in steps if not step.lost]
    if len(told) < _ENOUGH:
        return RandomStep()
    return RandomStep(*(math.sqrt(math.fsum(min(each, _LARGEST) ** 2 for each in column) / len(told))
                        for column in zip(*told, strict=True)))  # fmt: skip


def wrong_together(steps: RandomStep) -> bool:
    """Whether steps, taken `together`, show what no single one does: a backward pass that is wrong in a small part.

    The error of one image is that part's share times a normally distributed number.
    """
    return steps.error > _WRONG_TOGETHER and steps.bend < _STRAIGHT_TOGETHER * steps.error


class CleanGradient(NamedTuple):
    """What shows whether the gradient at a clean image can be believed."""

    step: float = 1.0  # what a short step along it gains, as a share of what it predicts; 1 where that is not known
    way: float = 1.0  # the same of the whole way to where it predicts most
    unseen: float = 0.0  # how much the values without a gradient move, as a share of all that it predicts
    random: RandomStep | None = None  # None: not taken

    @classmethod
    def of(
        cls, predicted: float, step: Gain, way: Gain, unseen: float, size: float, unit: float = 0.0
    ) -> "CleanGradient":
        """What was found at one image.

        Args:
            predicted: all that can be gained, as the gradient says.
            step: of a short step.
            way: of the whole way.
            unseen: what moving the values without a gradient gains; 0 if every value has one.
            size: of the logits of the two classes; changes below a ten-thousandth of it say nothing.
            unit: to which logits are rounded, as a share of their size, where they have 16 bits; nor do changes below
                four of these.
        """
        least = cls.least(size, unit)
        step_share, way_share = (
            gain.obtained / gain.predicted if gain.predicted > least else 1.0 for gain in (step, way)
        )
        if abs(unseen) <= least:
            return cls(step_share, way_share)
        return cls(step_share, way_share, abs(unseen) / predicted if predicted > 0 else math.inf)

    @staticmethod
    def least(size: float, unit: float) -> float:
        """The least change that says something; the arguments are those of `of`."""
        return max(_ROUNDING, _UNITS * unit) * size

    def right_nearby(self, shorter: Gain, least: float) -> bool:
        """Whether the gradient turns along a short step, but not along a much shorter one that says something.

        So it does in front of fast waves, and on networks that are rough; of a gradient that is wrong the error stays.
        """
        if not self.turns or shorter.predicted <= least:
            return False
        return not self._replace(step=shorter.obtained / shorter.predicted).turns

    @property
    def turns(self) -> bool:
        """Whether a short step gains less than a quarter or more than twice of what the gradient predicts."""
        return not _BENT <= self.step <= _MISSED

    @property
    def misdirects(self) -> bool:
        """Whether the whole way loses more than a fifth of what the gradient says that it gains."""
        return self.way < _MISDIRECTS

    @property
    def hides(self) -> bool:
        """Whether values without a gradient move more than a twentieth of what the gradient predicts."""
        return self.unseen > _HIDDEN_AT_CLEAN


_AS_PREDICTED = CleanGradient()


def believable(predicted: float, obtained: float, unseen: float = 0.0, clean: CleanGradient = _AS_PREDICTED) -> bool:
    """Whether a gradient may be believed, as `doubt` has it."""
    return doubt(predicted, obtained, unseen, clean) is None


def doubt(
    predicted: float, obtained: float, unseen: float, clean: CleanGradient, missed: float = _MISSED
) -> Doubt | None:  # fmt: skip
    """The first reason not to believe a gradient; None if there is none.

    Args:
        predicted: the rise, as the gradient says.
        obtained: what following it gains.
        unseen: what the values do, either way, at which the gradient is zero.
        clean: what was seen at the clean image.
        missed: how many times what it predicts may be gained.
    """
    if clean.hides or (predicted > 0 and unseen > _HIDDEN * predicted):
        return "hides"
    if clean.turns:
        return "turns"
    if clean.misdirects:
        return "misdirects"
    if clean.random is not None and clean.random.wrong:
        return "errs"
    return None if predicted > 0 and obtained <= missed * predicted else "misses"


def bent(predicted: float, obtained: float) -> bool:
    """Whether following a gradient obtained less than a quarter of what it predicted: nothing is linear there."""
    return obtained < _BENT * predicted


def backfires(predicted: float, obtained: float) -> bool:
    """Whether following a gradient loses more than half of what it predicted to gain."""
    return obtained < _BACKFIRES * predicted
