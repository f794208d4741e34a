"""From measurements to a word for each call: the decision table and its thresholds."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from torch import Tensor

from .calls import CallRun
from .fidelity import Response
from .slopes import Gradient

# Calibrated by bench/diagnose.py on one half of its networks and checked on the other.
SMALL_FAITHFUL: Final = 0.5  # max pooling of exact ties reads 0.71, what is broken 0.05 at most
FULL_FAITHFUL: Final = 0.5
LINEAR: Final = 0.5  # k-WTA and a steep sigmoid read 0.36 at most; ordinary layers that bend both ways 0.63 at least
WHOLE_FAITHFUL: Final = 0.1  # of the margin: at eps/100 kinks add up over depth to 0.38 in a random VGG
MIXED: Final = 0.05
JUMPING: Final = 0.5  # share of outputs that only the full move changes: a step function
MOST: Final = 0.9  # of the images
# Smoothed labels leave 0.84 and more of the wrong classes in play, at a spread of 0.15 and less; other training,
# adversarial included, at most 0.53, and a spread above 0.2 except where a confident network keeps 0.47 in play.
RIVALS: Final = 0.75
SPREAD: Final = 0.16

# What a verdict of a row means, and what it asks for.
MEANING: Final[Mapping[str, str]] = {
    "faithful": "the gradient predicts the response",
    "step": "zero derivative almost everywhere",
    "detached": "the output is cut off from the graph",
    "wrong backward": "the backward pass is not the derivative of the forward pass",
    "curved": "the gradient changes completely within the ball",
    "non-finite": "the backward pass returns NaN or infinity",
    "two-faced": "the output differs with and without gradients",
    "probabilities": "probabilities stand where logits should",
    "stochastic": "the same input is answered differently",
    "loss saturated": "rounding takes the gradient of the loss",
    "tied logits": "wrong classes tie, as after training with smoothed labels: an untargeted loss pulls to all of them",
    "surrogate": "a stand-in for a step, as an attack would put there itself",
    "flat": "nothing comes of the move: either insensitive, or dead",
    "unresolved": "the move drowns in rounding here",
    "constant": "the image does not reach it",
}  # fmt: skip
MASKING: Final = (
    "step", "detached", "wrong backward", "curved", "non-finite", "two-faced", "probabilities",
)  # fmt: skip
CULPABLE: Final = (*MASKING, "stochastic", "loss saturated")


class CallSummary(NamedTuple):
    """Medians and shares over images of one call."""

    grad_norm: float
    zero: float
    nonfinite: float
    fidelity: float
    fidelity_small: float
    linearity: float
    mixed: float
    reach: float
    unmoved: float
    jumps: float
    saturation: float
    invalid: float
    detached: bool
    stochastic: bool
    twofaced: bool


def numbers(answer: Response | None, gradient: Gradient | None) -> CallSummary:
    """What a row of the table shows."""
    nan = float("nan")
    grad = (median(gradient.norm), share(gradient.zero), share(gradient.nonfinite)) if gradient else (nan, nan, nan)
    if answer is None:
        return CallSummary(*grad, nan, nan, nan, nan, nan, nan, nan, nan, nan, False, False, False)
    return CallSummary(
        *grad, median(answer.fidelity), median(answer.fidelity_small), median(answer.linearity), median(answer.mixed),
        median(answer.reach), share(answer.unmoved), median(answer.jumps), median(answer.saturation),
        share(answer.invalid), bool(answer.detached.any()), bool(answer.stochastic.any()), bool(answer.twofaced.any()),
    )  # fmt: skip


def verdict(run: CallRun, seen: CallSummary) -> str:
    """The word for one call."""
    if seen.stochastic:
        return "stochastic"
    if seen.invalid > 0:
        return "non-finite"
    if seen.twofaced:
        return "two-faced"
    if seen.fidelity != seen.fidelity:
        return _still(seen)
    if seen.fidelity_small < SMALL_FAITHFUL:
        return _unfaithful(seen)
    # Curvature adds up over layers: a certified MNIST network of eight reads 0.06 at three times its radius, and each
    # of its layers 0.74 or more. So it is held against single layers only.
    return "curved" if run.leaf and seen.linearity < LINEAR and seen.mixed > MIXED else "faithful"


def _still(seen: CallSummary) -> str:
    if seen.unmoved != seen.unmoved:
        return "constant"
    return "flat" if seen.unmoved > MOST else "unresolved"


def _unfaithful(seen: CallSummary) -> str:
    if seen.fidelity >= FULL_FAITHFUL:
        return "surrogate"
    if seen.jumps > JUMPING:
        return "step"
    return "detached" if seen.detached else "wrong backward"


def median(values: Tensor) -> float:
    """Over the images that have one; NaN where none has."""
    return float(values.nanmedian())


def share(values: Tensor) -> float:
    """The mean of zeros and ones, NaN left out."""
    return float(values.nanmean())
