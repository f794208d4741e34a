"""The result of a diagnosis, for people and for tools."""

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from robustkit.host.notebook import Summarised

from .record import CAVEAT, DiagnosisRecord
from .text import markdown, plain

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Diagnosis(Summarised, DiagnosisRecord):
    """Where a network's gradients mislead an attack, why, and how much an attack gains by undoing it.

    A faithful gradient does not prove robustness.
    """

    def summary(self) -> dict[str, str]:
        """The verdict and its reason."""
        layers = ", ".join(row.name for row in self.causes)
        return {
            "model": self.model, "verdict": self.verdict, "reason": self.reason,
            **({"layers": layers} if layers else {}), "images": str(self.n), "threat": f"{self.norm} {self.eps}",
        }  # fmt: skip

    @property
    def masked(self) -> bool:
        """Whether robust accuracy under ordinary gradient attacks says nothing about robustness."""
        return self.verdict in ("masked", "randomized", "loss saturated")

    def to_dict(self) -> dict[str, Any]:
        """Built-in types with stable keys; None stands for NaN and infinity."""
        values: dict[str, Any] = _finite(asdict(self))
        values["unseen"] = [each._asdict() for each in self.unseen]
        values["source"] = [each._asdict() for each in self.source]
        values["prescription"] = [each._asdict() for each in self.prescription]
        values["proof"] = _finite(self.proof._asdict()) if self.proof else None
        values["caveat"] = CAVEAT
        return values

    def to_json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_frame(self) -> "pd.DataFrame":
        """One row per layer call."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])

    def to_markdown(self) -> str:
        """The table and the findings as Markdown."""
        return markdown(self)

    def __str__(self) -> str:
        return plain(self)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
