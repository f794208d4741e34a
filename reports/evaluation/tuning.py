"""What a fine-tuning changed, for the top of its page: accuracy before and after it on the same images."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from robustkit.comparison.compare import ALIKE, compare
from robustkit.errors import UserError
from robustkit.evidence.run import Run

from ..shared.words import percent, printable, signed_points


class TuningLine(NamedTuple):
    """Accuracy under one threat."""

    threat: str  # "clean" or such as "Linf 0.1"
    before: str
    before_count: str  # such as "240/504": the difference of rounded percentages would not be the rounded change
    after: str
    after_count: str
    change: str  # in points
    interval: str
    kind: str  # "better", "worse" or "unclear"


def tuning_lines(run: Run) -> list[TuningLine]:
    """A line for each threat, those with an attack first.

    Empty unless the run is a finished evaluation of two models, which `robustkit finetune` writes in this order.
    """
    try:
        pairs = compare(run).pairs.to_dict("records")
    except (UserError, KeyError, TypeError):  # an unfinished run, or one that is no evaluation of two models
        return []
    if len({(row["first"], row["second"]) for row in pairs}) != 1:
        return []
    return sorted(map(_line, pairs), key=lambda line: line.threat == "clean")


def tuning_sentences(lines: list[TuningLine]) -> Iterator[str]:
    """The first threat and the clean images as sentences."""
    for line in [*lines[:1], *[line for line in lines[1:] if line.threat == "clean"]]:
        what = "Accuracy on clean images" if line.threat == "clean" else f"Accuracy at {line.threat}"
        verb = {"better": "rose", "worse": "fell"}.get(line.kind, "did not change clearly:")
        shares = f"{line.before} ({line.before_count}) to {line.after} ({line.after_count})"
        yield f"{what} {verb} from {shares}, {line.change} points (95 %: {line.interval})."


def _line(row: dict[Any, Any]) -> TuningLine:
    threat = "clean" if row["norm"] == "-" else printable(f"{row['norm']} {row['eps_text']}")
    both, n = row["both"], row["n"]
    kind = "unclear" if row["verdict"] == ALIKE else "better" if row["verdict"] == "second" else "worse"
    first, second = both + row["first_only"], both + row["second_only"]
    low, high = signed_points(-row["ci_high"]), signed_points(-row["ci_low"])
    return TuningLine(
        threat, percent(first, n), f"{first}/{n}", percent(second, n), f"{second}/{n}",
        signed_points(-row["difference"]), f"{low} to {high}", kind,
    )  # fmt: skip
