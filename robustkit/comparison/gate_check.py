"""The outcome of one condition of a gate."""

from typing import Final, NamedTuple

from robustkit.statistics.telling_digits import in_telling_digits

# What a condition says of the end of the interval that it is about.
_JUDGED_BY: Final = {"point": "", "low": ", judged by the lower end", "high": ", judged by the upper end"}


class GateCheck(NamedTuple):
    """One condition on one model."""

    model: str
    threat: (
        str  # "clean", such as "Linf 8/255", "union (Linf 8/255 + L2 0.5)", "corruptions", "corruption fog" or "mCE"
    )
    passed: bool
    reason: str  # what was measured, and what was asked for


# 27 right of 45 versions of 9 images are 5.4 / 9, which is less than 0.6 as a float.
_ROUNDING: Final = 1e-12


def reaches(value: float, bound: float) -> bool:
    """Whether a share is at least so large, up to the rounding of floats."""
    return value >= bound - _ROUNDING


def share_check(
    model: str, threat: str, share: tuple[float, float, float], counted: str, bound: float, judged_by: str
) -> GateCheck:  # fmt: skip
    """The outcome of a condition on an accuracy.

    Args:
        model: its name.
        threat: as in `GateCheck`.
        share: the accuracy, and the lower and the upper end of its interval.
        counted: what it was counted on.
        bound: the least that is asked for.
        judged_by: which of the three is asked for it, "point", "low" or "high".
    """
    value, low, high = share
    passed = reaches({"point": value, "low": low, "high": high}[judged_by], bound)
    measured = share_in_words(value, low, high, counted, bound, judged_by)
    word = "at least" if passed else "below"
    return GateCheck(model, threat, passed, f"{measured} is {word} {percent_of(bound)} %{_JUDGED_BY[judged_by]}")


def share_in_words(
    value: float, low: float, high: float, counted: str, bound: float, judged_by: str = "point"
) -> str:  # fmt: skip
    """A share with its interval, and what it was counted on: "51.5 % (95 %: 44.6 to 58.3 %, n=200)".

    With further digits where the number that is judged would else look like the `bound` that it is compared with.
    """
    shares = {"point": value, "low": low, "high": high}
    point, least, most = (
        percent_beside(each, bound) if name == judged_by else f"{100 * each:.1f}" for name, each in shares.items()
    )
    return f"{point} % (95 %: {least} to {most} %, {counted})"


def percent_beside(value: float, bound: float) -> str:
    """A share in percent, in as many digits as show on which side of the bound it is."""
    limit = float(percent_of(bound))
    return in_telling_digits(
        lambda digits: f"{100 * value:.{digits}f}", lambda shown: shown >= limit, beyond=reaches(value, bound), least=1
    )


def percent_of(bound: float) -> str:
    """A bound in percent, in all of its digits."""
    return f"{100 * bound:.12g}"
