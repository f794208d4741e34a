"""What a diagnosis consists of: a row for each layer call, the verdict, its causes, the remedies and the proof."""

import math
from dataclasses import dataclass
from typing import Literal

from .calls import Unseen
from .lines import OpSite
from .proof import Proof
from .remedies import Prescription

Verdict = Literal["clear", "masked", "randomized", "loss saturated", "inconclusive"]

CAVEAT = (
    "A faithful gradient does not prove robustness: it only means that gradient attacks work on this model. "
    "Attacks still give upper bounds."
)


@dataclass(frozen=True)
class LayerRow:
    """One call of one layer; medians and shares are over images."""

    layer: str  # dotted name; "" is the network's own forward
    call: int  # of this layer, from 0
    kind: str  # the layer's class
    shape: tuple[int, ...]  # of its output for one image
    grad_norm: float  # median norm of the loss gradient with respect to the output
    zero: float  # share of images for which that gradient is exactly zero
    nonfinite: float  # share of images for which that gradient has NaN or infinity
    fidelity: float  # predicted over real response to a perturbation of size eps: 1 faithful, 0 no relation
    fidelity_small: float  # the same at eps / 100
    linearity: float  # how similar the response at eps is to the one at eps / 100, extrapolated
    mixed: float  # share of the curvature with the rarer sign: 0 for a convex layer such as max pooling
    reach: float  # norm of the output's change, relative to the norm of the output
    saturation: float  # share of its inputs with a derivative of nearly zero
    randomized: bool
    detached: bool
    verdict: str
    hint: str
    missing: float = math.nan  # share of its response to small moves that its backward pass leaves out

    @property
    def name(self) -> str:
        """The layer's name for people, with the number of the call unless it is the first."""
        return (self.layer or "(forward)") + (f" #{self.call + 1}" if self.call else "")


@dataclass(frozen=True)
class EndToEnd:
    """The whole network, from the image to the margin between the true class and the likeliest wrong class."""

    fidelity: float
    fidelity_small: float
    zero: float  # share of images whose input gradient is exactly zero
    lost: float  # share of images for which rounding destroyed the loss gradient with respect to the logits
    largest_logit: float  # median


@dataclass(frozen=True)
class DiagnosisRecord:
    """The fields of a diagnosis; `Diagnosis` adds its forms as text, JSON, Markdown and data frame."""

    model: str
    verdict: Verdict
    reason: str  # one sentence
    rows: tuple[LayerRow, ...]  # in execution order
    causes: tuple[LayerRow, ...]  # the rows of layers that mask gradients, are randomized or saturate the loss
    source: tuple[OpSite, ...]  # lines of code that may be the cause, the likeliest first
    prescription: tuple[Prescription, ...]
    proof: Proof | None
    whole: EndToEnd
    unseen: tuple[Unseen, ...]
    notes: tuple[str, ...]
    n: int
    norm: str
    eps: str
    loss: str
    seed: int
