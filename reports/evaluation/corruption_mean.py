"""The mean accuracy on corrupted images: a column beside the threats, and the answer of a page without attacks."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from robustkit.comparison.compare import ALIKE, LEVEL
from robustkit.comparison.contestants import contestants
from robustkit.comparison.corrupted import corrupted_pairs
from robustkit.evidence.corruptions import ALL, ROLE

from ..shared.words import PARTS, percent, point_range, points, printable
from .board import Board
from .result_rows import ResultRow, ThreatLabel


class CorruptionMean(NamedTuple):
    """One model on corrupted images."""

    row: ResultRow
    images: int
    what: str  # "3 corruptions at severities 1-5"


class PairedMean(NamedTuple):
    """The difference of two models on corrupted images."""

    words: str
    told_apart: bool  # whether a paired test sees it


def corruption_means(board: Board) -> dict[str, CorruptionMean]:
    """By model its mean over all corruptions and severities; of a model in several runs that of the first one."""
    found: dict[str, CorruptionMean] = {}
    for mean in _means(board):
        found.setdefault(mean.row.model, mean)
    return found


def answer_on_corruptions(board: Board) -> tuple[str, str]:
    """Sentence and support of a page about corrupted images alone; empty if there are none."""
    means = sorted(corruption_means(board).values(), key=lambda mean: -mean.row.correct)
    if not means:
        return "", ""
    best, clean = means[0], board.clean(means[0].row.model)
    before = f" Without a corruption {best.row.model} is correct on {percent(clean.correct, clean.n)}." if clean else ""
    support = (
        f"The mean over {best.what}, on {best.images:,} images: an average, not a worst case.{before} No attack was "
        "run, so this says nothing about an attacker."
    )
    return _sentence(board, means), support


def _means(board: Board) -> Iterator[CorruptionMean]:
    for run, names in zip(board.runs, board.names, strict=True):
        frame = run.corruptions
        several = (
            {model for model, name in zip(frame["model"], frame["corruption"], strict=True) if name == ALL}
            if len(frame)
            else set()
        )
        for row in frame.to_dict("records"):
            if not row["n"] or (row["corruption"] != ALL and row["model"] in several):
                continue
            own = frame[(frame["model"] == row["model"]) & (frame["corruption"] != ALL)]
            what = f"{len(own)} corruptions" if len(own) > 1 else printable(str(row["corruption"]))
            name = "severity" if str(row["severities"]).isdigit() else "severities"
            yield CorruptionMean(
                ResultRow(
                    names[printable(str(row["model"]))], ThreatLabel(ROLE, f"mean of {what}", math.nan), ALL, ROLE,
                    PARTS, round(row["accuracy"] * PARTS), float(row["ci_low"]), float(row["ci_high"]),
                    str(row["ci_method"]), 0, 0, 0, 0,
                ),
                int(row["n"]), f"{what} at {name} {str(row['severities']).replace('-', ' to ')}",
            )  # fmt: skip


def _sentence(board: Board, means: list[CorruptionMean]) -> str:
    best = means[0].row
    if len(means) == 1:
        return (
            f"{best.model} classifies {best.percent} of corrupted images correctly (95 %: {best.interval}, "
            f"n = {means[0].images:,})."
        )
    others, tested = [mean.row for mean in means[1:]], _tested(board, best.model)
    if any(row.model not in tested for row in others):
        counts = ", ".join(f"{mean.row.model} {mean.row.percent}" for mean in means)
        return f"Correct on corrupted images: {counts}; differences are not tested."
    # Models that the test does not tell apart from the best need not be the next ones.
    alike = [row for row in others if not tested[row.model].told_apart]
    second = (alike or others)[0]
    difference = tested[second.model].words
    if not alike:
        return (
            f"{best.model} is the most accurate on corrupted images: {best.percent}, {difference} above {second.model}."
        )
    more = f" and {len(alike) - 1} other{'s' if len(alike) > 2 else ''}" if len(alike) > 1 else ""
    both = f"{best.model} ({best.percent}) and {second.model} ({second.percent}){more}"
    whose = "the difference of the first two" if more else "their difference"
    return f"{both} do not differ significantly on corrupted images: {whose} is {difference}."


def _tested(board: Board, best: str) -> dict[str, PairedMean]:
    """By model the difference of the best one from it; empty where there is no test."""
    if len(board.runs) > 1 or any(run.manifest["finished"] is None for run in board.runs):
        return {}
    pairs = corrupted_pairs(contestants(board.runs), LEVEL, ALIKE)
    found = {}
    for row in pairs[pairs["corruption"] == _overall(board)].to_dict("records"):
        first, second = (board.names[0][printable(str(row[key]))] for key in ("first", "second"))
        if best not in (first, second):
            continue
        sign = 1 if first == best else -1
        low, high = sorted((sign * row["ci_low"], sign * row["ci_high"]))
        words = f"{points(sign * row['difference'])} points (95 %: {point_range(low, high)})"
        found[second if first == best else first] = PairedMean(words, row["verdict"] != ALIKE)
    return found


def _overall(board: Board) -> str:
    names = list(board.runs[0].corruptions["corruption"])
    return ALL if ALL in names else str(names[0])
