"""Conditions on a run as a user writes them: "Linf@8/255>=0.40", "clean>=90%", "corruptions>=0.50", "mCE<=0.9"."""

import re
from typing import NamedTuple

from robustkit.errors import UserError
from robustkit.evidence.corruptions import ALL
from robustkit.evidence.union import UNION
from robustkit.limits import shortened
from robustkit.primitives.threat import canonical, exact, is_minimum, radius_under

from .contestants import CLEAN, ThreatKey

_CONDITION = re.compile(
    r"\s*(?P<whole>clean|union|(?P<norm>[\w-]+)@(?P<eps>[^@<>=]+?))\s*>=\s*(?P<share>[^<>=%]+?)\s*(?P<percent>%?)\s*"
)
_CORRUPTIONS = re.compile(
    r"\s*(?:corruptions(?:@(?P<name>[\w.-]+))?\s*>=\s*(?P<share>[^<>=]+)|mCE\s*<=\s*(?P<error>[^<>=%]+?)\s*(?P<percent>%?))\s*"
)


class CorruptionCondition(NamedTuple):
    """The least accuracy on corrupted images, or the largest mCE."""

    corruption: str  # "all" for the mean over all corruptions
    is_error: bool  # whether it is about mCE
    bound: float
    text: str


class Condition(NamedTuple):
    """The least accuracy under one threat, under all threats of the run together, or on clean images."""

    threat: ThreatKey  # all together: the norm "union" without parts, whatever threats a run has
    least: float  # share
    text: str


def condition(text: str) -> Condition | CorruptionCondition:
    """The condition that a text stands for; a share is 0.4 or 40%.

    `NORM@EPS>=SHARE`, `union>=SHARE`, `clean>=SHARE`, `corruptions>=SHARE` (the mean over all corruptions and
    severities), `corruptions@NAME>=SHARE` (over the severities of one), or `mCE<=ERROR` (0.9 or 90%).

    Raises:
        UserError: it is no such text, or the share is above 1.
    """
    corrupted = _CORRUPTIONS.fullmatch(text)
    if corrupted is not None:
        return _about_corruptions(text, corrupted)
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise UserError(
            f"{shortened(text)!r} is not a condition; write for example Linf@8/255>=0.40, clean>=90%, corruptions>=0.5 "
            "or mCE<=0.9."
        )
    threat = ThreatKey(UNION, 0.0) if parts["whole"] == UNION else CLEAN
    if parts["norm"]:
        norm = canonical(parts["norm"])
        if is_minimum(parts["eps"]):
            raise UserError(f"{shortened(text)!r} has no radius; a condition needs one, such as {norm}@8/255>=0.40.")
        threat = ThreatKey(norm, radius_under(norm, parts["eps"]))
    return Condition(threat, share(parts["share"] + parts["percent"]), text.strip())


def _about_corruptions(text: str, parts: re.Match[str]) -> CorruptionCondition:
    if parts["share"] is not None:
        return CorruptionCondition(parts["name"] or ALL, False, share(parts["share"]), text.strip())
    try:
        value = float(exact(parts["error"]) / (100 if parts["percent"] else 1))
    except UserError:
        value = -1
    if value < 0:  # an error may be larger than that of the baseline
        raise UserError(f"{shortened(text)!r} has no bound for mCE; write mCE<=0.9 or mCE<=90%.")
    return CorruptionCondition(ALL, True, value, text.strip())


def share(text: str) -> float:
    """A share from 0 to 1, written as 0.02, 2% or 1/50.

    Raises:
        UserError: it is no number, or not from 0 to 1.
    """
    number, percent = (text.strip()[:-1], True) if text.strip().endswith("%") else (text, False)
    try:
        value = float(exact(number) / (100 if percent else 1))
    except UserError:
        raise UserError(f"{shortened(text)!r} is not a share; write 0.4 or 40%.") from None
    if not 0 <= value <= 1:
        raise UserError(f"{shortened(text)!r} is not a share from 0 to 1; write 0.4 or 40%.")
    return value
