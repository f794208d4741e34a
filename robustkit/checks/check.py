"""What a check is: a rule, what it finds in the facts of one model, and the row that reports show."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

from robustkit.checks.facts import Level, ModelFacts
from robustkit.checks.probing import CheckProbe
from robustkit.statistics.intervals import proportion

Status = Literal["ok", "warning", "failed", "not_applicable", "not_run"]
Severity = Literal["info", "minor", "major", "invalidating"]

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
_FEWEST = 2  # images: one can be luck


class Finding(NamedTuple):
    """What a rule says about one threat, or about the model as a whole."""

    threat: str  # "Linf 8/255", or "" for the model
    status: Status
    text: str  # one sentence: what was counted, or why the rule does not apply
    images: tuple[int, ...] = ()  # numbers of the images that show it
    numbers: Mapping[str, float] = {}


@dataclass(frozen=True)
class Check:
    """One row: one rule applied to one model, at one threat or as a whole."""

    model: str
    threat: str  # "Linf 8/255", or "" for the model as a whole
    name: str
    title: str
    level: Level
    status: Status
    severity: Severity  # of a failure
    finding: str  # one sentence
    note: str = ""  # a few words about what is wrong, where the status is "warning" or "failed"
    remedy: str = ""  # one sentence that names the command, where the status is "warning" or "failed"
    images: tuple[int, ...] = ()  # numbers of the images that show it
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """Model, threat, finding and remedy."""
        return f"{self.model}{f' at {self.threat}' if self.threat else ''}: {self.finding} {self.remedy}".strip()

    @property
    def alarming(self) -> bool:
        """Whether it is a warning or worse."""
        return self.status in ("warning", "failed")


@dataclass(frozen=True)
class Rule:
    """One check as it is registered.

    Args:
        name: in evidence and tables, for example "zero_gradients".
        title: a few words.
        level: the lowest level that includes it.
        severity: of a failure.
        note: why a result is not reliable, in a few words, for headlines and results.csv.
        remedy: one sentence that names the command.
        judge: looks at the facts.
        probes: the passes that it needs beside the run's own; none for a rule that reads the evidence alone.
        worst_of: how much a finding shows it; a warning is about the threat where that is most.
        said_as: how the warning begins that the run itself prints and stores of the same; it is not said twice.
    """

    name: str
    title: str
    level: Level
    severity: Severity
    note: str
    remedy: str
    judge: Callable[[ModelFacts], Iterable[Finding]]
    probes: tuple[CheckProbe, ...] = ()
    worst_of: Callable[[Finding], float] | None = None  # how much a finding shows, to warn of the worst threat only
    said_as: str = ""


def not_run(threat: str = "") -> Finding:
    """The finding where passes of a check are missing."""
    how = "Passes of this check are missing: repeat robustkit evaluate with the same --out and --checks."
    return Finding(threat, "not_run", how)


def graded(*, failed: bool, warning: bool) -> Status:
    """The status of a rule that applies."""
    return "failed" if failed else "warning" if warning else "ok"


def surely_more(found: int, images: int, share: float, fewest: int = _FEWEST) -> bool:
    """Whether more than a share of all images shows what was found, by the lower end of the interval of its share."""
    return found >= fewest and proportion(found, images).low > share


def graded_share(found: int, images: int, *, noted: float, wrong: float) -> Status:
    """The status of a rule that found something on so many images; without any it is "ok"."""
    return graded(failed=surely_more(found, images, wrong), warning=surely_more(found, images, noted))


def reaches(level: Level, asked: Level) -> bool:
    """Whether a rule of `level` belongs to what was asked for."""
    return LEVELS.index(level) <= LEVELS.index(asked)


def highest(*levels: Level) -> Level:
    """The highest of some levels."""
    return max(levels, key=LEVELS.index)
