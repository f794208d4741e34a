"""The result of a diagnosis: rows, culprits, remedies and their proof, for people and for tools."""

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from .calls import Unseen
from .lines import OpSite
from .proof import Proof
from .remedies import Prescription

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["clear", "masked", "stochastic", "loss saturated", "inconclusive"]

CAVEAT = (
    "A faithful gradient does not prove robustness: it only means that gradient attacks measure what they seem to. "
    "Attacks still give upper bounds."
)


@dataclass(frozen=True)
class LayerRow:
    """One call of one layer; medians and shares are over images."""

    layer: str  # dotted name; "" is the network's own forward
    call: int  # of this layer, from 0
    kind: str  # its class
    shape: tuple[int, ...]  # of its output for one image
    grad_norm: float  # median length of the loss's gradient in its output
    zero: float  # share of images whose gradient there is exactly zero
    nonfinite: float  # share of images whose gradient there has NaN or infinity
    fidelity: float  # predicted over real response to a move of size eps: 1 faithful, 0 ignorant
    fidelity_small: float  # the same at eps / 100
    linearity: float  # how far the response at eps is that at eps / 100, extrapolated
    mixed: float  # share of the curvature that bends the rarer way: 0 for a convex layer such as max pooling
    reach: float  # how far the output moves, relative to its length
    saturation: float  # share of its inputs without a derivative
    stochastic: bool
    detached: bool
    verdict: str
    hint: str

    @property
    def name(self) -> str:
        """As shown: the name, and the number of the call where it is not the first."""
        return (self.layer or "(forward)") + (f" #{self.call + 1}" if self.call else "")


@dataclass(frozen=True)
class EndToEnd:
    """The whole network, from the image to the margin between the true class and the next."""

    fidelity: float
    fidelity_small: float
    zero: float  # share of images whose input gradient is exactly zero
    lost: float  # share of images where rounding took the loss's gradient in the logits
    largest_logit: float  # median


@dataclass(frozen=True)
class Diagnosis:
    """Where a network's gradients mislead, why, and what an attack gains by undoing it.

    A faithful gradient does not prove robustness.
    """

    model: str
    verdict: Verdict
    reason: str  # one sentence
    rows: tuple[LayerRow, ...]  # in the order of execution
    culprits: tuple[LayerRow, ...]
    source: tuple[OpSite, ...]
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

    @property
    def masked(self) -> bool:
        """Whether robust accuracy by ordinary gradient attacks is no evidence."""
        return self.verdict in ("masked", "stochastic", "loss saturated")

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys; what is not a number is None."""
        plain: dict[str, Any] = _plain(asdict(self))
        plain["unseen"] = [each._asdict() for each in self.unseen]
        plain["source"] = [each._asdict() for each in self.source]
        plain["prescription"] = [each._asdict() for each in self.prescription]
        plain["proof"] = _plain(self.proof._asdict()) if self.proof else None
        plain["caveat"] = CAVEAT
        return plain

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_frame(self) -> "pd.DataFrame":
        """The rows as a table."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])

    def to_markdown(self) -> str:
        """The table and the findings as Markdown."""
        from .text import markdown

        return markdown(self)

    def __str__(self) -> str:
        from .text import plain

        return plain(self)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
