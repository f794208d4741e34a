"""The verdict on each call: the decision table and its thresholds."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from torch import Tensor

from .calls import CallRun
from .fidelity import Response
from .loss_gradients import CallGradient

# Calibrated by bench/diagnose.py on one half of its networks and checked on the other.
SMALL_FAITHFUL: Final = 0.5  # max pooling of exact ties reads 0.71, masked gradients 0.05 at most
FULL_FAITHFUL: Final = 0.5
LINEAR: Final = 0.5  # k-WTA and a steep sigmoid read 0.36 at most; ordinary layers of mixed curvature 0.63 at least
WRONG: Final = 0.25  # error in a random direction; with a tenth of a gradient reversed 0.45, otherwise 0.15 at most
_STRAIGHT: Final = 0.5  # the most that such a line bends, as a share of the error
MISSING: Final = 0.1  # of the small response; kinks read 0.00, the backward pass of half of the pixels 0.5
WHOLE_FAITHFUL: Final = 0.1  # of the margin at eps/100; the kinks of a random VGG add up over depth to 0.38
MIXED: Final = 0.05
JUMPING: Final = 0.5  # share of outputs that only the full move changes: a step function
SATURATED: Final = 0.3  # share of inputs without a derivative; it calls for more attacks, and is no verdict
BENDS_BOTH_WAYS: Final = 1e-3  # in `mixed`: ReLU reads 0.0000, tanh behind logits 0.02
MOST: Final = 0.9  # of the images
# After label smoothing, 0.84 and more of the wrong classes compete, at a spread of 0.15 and less; after other training,
# adversarial included, at most 0.53, at a spread above 0.2 except for a confident network where 0.47 compete.
RIVALS: Final = 0.75
SPREAD: Final = 0.16

# What each verdict means, in the words of the report.
MEANING: Final[Mapping[str, str]] = {
    "faithful": "the gradient predicts the response",
    "step": "zero derivative almost everywhere",
    "detached": "the output is cut off from the graph",
    "wrong backward": "the backward pass is not the derivative of the forward pass",
    "partial backward": "the backward pass is zero for inputs to which the output responds",
    "saturated": "its derivative is nearly zero, and so is the gradient of everything before it",
    "curved": "the gradient changes completely within the ball",
    "non-finite": "the backward pass returns NaN or infinity",
    "no_grad differs": "the output differs with and without gradients",
    "probabilities": "the outputs are probabilities, not logits",
    "randomized": "the same input gives different outputs",
    "loss saturated": "rounding destroys the gradient of the loss",
    "tied logits": "wrong classes tie, as after label smoothing: an untargeted loss moves towards all of them at once",
    "straight-through": "a straight-through gradient for a step, as an attack would use itself",
    "flat": "the output does not change: either insensitive, or dead",
    "unresolved": "the change is smaller than rounding errors",
    "constant": "its input does not depend on the image",
}  # fmt: skip
MASKING: Final = (
    "step", "detached", "wrong backward", "partial backward", "saturated", "curved", "non-finite", "no_grad differs",
    "probabilities",
)  # fmt: skip
CAUSES: Final = (*MASKING, "randomized", "loss saturated")  # verdicts that explain why attacks fail


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
    missing: float
    error: float
    bend: float
    invalid: float
    detached: bool
    randomized: bool
    no_grad_differs: bool


def summarize(answer: Response | None, gradient: CallGradient | None) -> CallSummary:
    """The numbers of a call's row in the table."""
    nan = math.nan
    grad = (median(gradient.norm), share(gradient.zero), share(gradient.nonfinite)) if gradient else (nan, nan, nan)
    if answer is None:
        return CallSummary(*grad, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, False, False, False)
    return CallSummary(
        *grad, median(answer.fidelity), median(answer.fidelity_small), median(answer.linearity), median(answer.mixed),
        median(answer.reach), share(answer.unmoved), median(answer.jumps), median(answer.saturation),
        median(answer.missing), root_mean_square(answer.error), root_mean_square(answer.bend), share(answer.invalid),
        bool(answer.detached.any()), bool(answer.randomized.any()), bool(answer.no_grad_differs.any()),
    )  # fmt: skip


def verdict(run: CallRun, summary: CallSummary) -> str:
    """The verdict on one call, a key of MEANING."""
    if summary.randomized:
        return "randomized"
    if summary.invalid > 0:
        return "non-finite"
    if summary.no_grad_differs:
        return "no_grad differs"
    if math.isnan(summary.fidelity):
        return _without_response(summary)
    if summary.fidelity_small < SMALL_FAITHFUL:
        return _unfaithful(summary)
    if summary.missing > MISSING:
        return "partial backward"
    if summary.error > WRONG and summary.bend < _STRAIGHT * summary.error:
        return "wrong backward"
    # Curvature adds up over layers: a certified MNIST network of eight layers has a linearity of 0.06 at three times
    # its radius, and each of its layers 0.74 or more. So only single layers are called curved.
    return "curved" if run.leaf and summary.linearity < LINEAR and summary.mixed > MIXED else "faithful"


def _without_response(summary: CallSummary) -> str:
    if math.isnan(summary.unmoved):
        return "constant"
    return "flat" if summary.unmoved > MOST else "unresolved"


def _unfaithful(summary: CallSummary) -> str:
    if summary.fidelity >= FULL_FAITHFUL:
        return "straight-through"
    if summary.jumps > JUMPING:
        return "step"
    return "detached" if summary.detached else "wrong backward"


def may_saturate(run: CallRun, summary: CallSummary) -> bool:
    """Whether many inputs of a call have no derivative and its curvature is that of an S, as tanh has it.

    ReLU and max pooling have inputs without a derivative as well, but bend one way only.
    """
    return run.leaf and run.same_shape and summary.saturation > SATURATED and summary.mixed > BENDS_BOTH_WAYS


def median(values: Tensor) -> float:
    """The median of the values that are not NaN; NaN if all are."""
    return float(values.nanmedian())


def root_mean_square(values: Tensor) -> float:
    """Of the values that are not NaN; NaN if all are."""
    return math.sqrt(float(values.square().nanmean()))


def share(values: Tensor) -> float:
    """The mean of zeros and ones without NaN."""
    return float(values.nanmean())
