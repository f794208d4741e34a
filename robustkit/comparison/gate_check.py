"""The outcome of one condition of a gate."""

from typing import Final, NamedTuple

# What a condition says of the end of the interval that it is about.
JUDGED_BY: Final = {"point": "", "low": ", judged by the lower end", "high": ", judged by the upper end"}


class GateCheck(NamedTuple):
    """One condition on one model."""

    model: str
    threat: (
        str  # "clean", such as "Linf 8/255", "union (Linf 8/255 + L2 0.5)", "corruptions", "corruption fog" or "mCE"
    )
    passed: bool
    reason: str  # what was measured, and what was asked for


def share_in_words(value: float, low: float, high: float, counted: str, bound: float | None = None) -> str:
    """A share with its interval, and what it was counted on: "51.5 % (95 %: 44.6 to 58.3 %, n=200)".

    With further digits where it would else look like the `bound` that it is compared with.
    """
    digits = 1 if bound is None else _digits(value, bound)
    return f"{100 * value:.{digits}f} % (95 %: {100 * low:.1f} to {100 * high:.1f} %, {counted})"


def _digits(value: float, bound: float) -> int:
    """How many digits a percentage needs so that it is on that side of the bound on which the value is."""
    least = float(f"{100 * bound:.12g}")
    same = (each for each in range(1, 9) if (round(100 * value, each) >= least) == (value >= bound))
    return next(same, 9)
