"""What automatic checks say about a run: why results are not reliable, and one line for each check."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from robustkit.checks import Check
from robustkit.checks.check import Status
from robustkit.evidence.checked import SWITCHED_OFF, level_of

from ..shared.words import printable
from .board import Board

_SHOWN = 12  # image numbers in a line
_ORDER: tuple[Status, ...] = ("failed", "warning", "ok", "not_applicable", "not_run")
ALARMS = {"failed": "Not reliable", "warning": "Warning"}  # how a sentence about a check begins


class CheckLine(NamedTuple):
    """One check of one model, at one threat or as a whole."""

    model: str
    threat: str
    title: str
    name: str
    status: Status
    words: str  # the status for people
    finding: str
    note: str  # "Warning: the search was not finished"; empty where nothing is wrong
    remedy: str
    images: str  # numbers, shortened


class CheckSummary(NamedTuple):
    """The checks of a board."""

    unreliable: list[str]  # one sentence for each model that has a result which is not reliable
    alarms: list[CheckLine]  # failed ones first, then warnings
    lines: list[CheckLine]  # all of them
    counts: str  # "1 warning, 31 ok, 4 not applicable"
    switched_off: str  # the sentence that no run had checks; else empty

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.lines or self.switched_off)


def check_summary(board: Board) -> CheckSummary:
    """The checks of all runs of a board."""
    checks = [check for run in board.runs for check in run.checks]
    lines = [_line(check) for check in checks]
    alarms = sorted((line for line in lines if line.status in _ORDER[:2]), key=lambda line: _ORDER.index(line.status))
    counts = {status: sum(line.status == status for line in lines) for status in _ORDER}
    text = ", ".join(f"{count} {_in_words(status)}" for status, count in counts.items() if count)
    text += " (--checks full runs all)" if counts["not_run"] else ""
    off = SWITCHED_OFF if all(level_of(run.manifest) == "none" for run in board.runs) else ""
    return CheckSummary(list(unreliable(checks)), alarms, lines, text, off)


def unreliable(checks: Iterable[Check]) -> Iterator[str]:
    """One sentence for each model that has a result which is not reliable."""
    why: dict[str, dict[str, dict[str, None]]] = {}
    for check in checks:
        if check.status == "failed":
            why.setdefault(check.model, {}).setdefault(check.threat, {})[check.note] = None
    for model, threats in why.items():
        reasons = [f"{f'at {threat} ' if threat else ''}{', '.join(notes)}" for threat, notes in threats.items()]
        yield f"Not reliable: {printable(model)} ({printable('; '.join(reasons))})."


def _line(check: Check) -> CheckLine:
    return CheckLine(
        printable(check.model), printable(check.threat), check.title, check.name, check.status,
        _in_words(check.status), printable(check.finding),
        f"{ALARMS[check.status]}: {check.note}" if check.alarming else "", check.remedy, _images(check.images),
    )  # fmt: skip


def _in_words(status: Status) -> str:
    return status.replace("_", " ")


def _images(images: Sequence[int]) -> str:
    shown = ", ".join(map(str, images[:_SHOWN]))
    more = len(images) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
