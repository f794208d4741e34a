"""The outcome of one condition of a gate."""

from typing import NamedTuple


class GateCheck(NamedTuple):
    """One condition on one model."""

    model: str
    threat: (
        str  # "clean", such as "Linf 8/255", "union (Linf 8/255 + L2 0.5)", "corruptions", "corruption fog" or "mCE"
    )
    passed: bool
    reason: str  # what was measured, and what was asked for
