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
    second = means[1].row
    tested = _difference(board, best.model, second.model)
    if tested is None:
        counts = ", ".join(f"{mean.row.model} {mean.row.percent}" for mean in means)
        return f"Correct on corrupted images: {counts}; differences are not tested."
    difference, told_apart = tested
    if told_apart:
        return (
            f"{best.model} is the most accurate on corrupted images: {best.percent}, {difference} above {second.model}."
        )
    both = f"{best.model} ({best.percent}) and {second.model} ({second.percent})"
    return f"{both} do not differ significantly on corrupted images: their difference is {difference}."


def _difference(board: Board, first: str, second: str) -> tuple[str, bool] | None:
    """The difference in words, and whether a paired test sees it; None where there is no test."""
    if len(board.runs) > 1 or any(run.manifest["finished"] is None for run in board.runs):
        return None
    pairs = corrupted_pairs(contestants(board.runs), LEVEL, ALIKE)
    shown = board.names[0]
    for row in pairs.to_dict("records"):
        names = [shown[printable(str(row[key]))] for key in ("first", "second")]
        if sorted(names) != sorted([first, second]) or row["corruption"] != _overall(board):
            continue
        sign = 1 if names[0] == first else -1
        low, high = sorted((sign * row["ci_low"], sign * row["ci_high"]))
        text = f"{points(sign * row['difference'])} points (95 %: {point_range(low, high)})"
        return text, row["verdict"] != ALIKE
    return None


def _overall(board: Board) -> str:
    names = list(board.runs[0].corruptions["corruption"])
    return ALL if ALL in names else str(names[0])
