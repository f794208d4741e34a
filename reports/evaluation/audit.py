"""Sentences about audits: what AutoAttack broke of some random survivors, and how much the attacks can have missed."""

import math

from robustkit.evidence.audit import AUDIT
from robustkit.evidence.results import EXACT

from .board import Board
from .result_rows import UNFINISHED, ResultRow

_SURVIVORS = "survivors: images that no other attack broke; the seed draws those that are audited."


def notes(board: Board) -> list[str]:
    """One sentence for each model and threat that was audited; none where nothing was."""
    rows = [row for row in board.rows if row.role == AUDIT]
    return [*(f"{_place(board, row)}: {_sentence(row)}" for row in rows), *([_SURVIVORS] if rows else [])]


def methods(board: Board) -> str:
    """What an audit is, for the methods paragraph; empty where there is none."""
    if not any(row.role == AUDIT for row in board.rows):
        return ""
    return (
        " The audit attacked survivors, images that no other attack broke, with AutoAttack; the seed drew them. Those "
        "that it broke count as broken in the worst case. The bound on the share of all survivors that AutoAttack "
        "would break is the one-sided 95 % bound of Clopper and Pearson; where all were audited, the share is exact."
    )


def _place(board: Board, row: ResultRow) -> str:
    several = (len(board.models) > 1, row.model), (len(board.threats) > 1, str(row.threat))
    return ", ".join([row.attack, *(text for shown, text in several if shown)])


def _sentence(row: ResultRow) -> str:
    broken = row.n - row.correct
    if row.method == UNFINISHED:
        return f"unfinished; AutoAttack broke {broken} of {row.n} survivors so far, and there is no bound yet."
    if row.n == 0:
        return "no image survived, so nothing was audited."
    found = (
        f"AutoAttack broke {broken} of {row.n} survivors{', which the worst case counts as broken' if broken else ''}"
    )
    if row.method == EXACT:
        return f"{found}; these are all survivors."
    # Rounded up, so that the bound holds as printed.
    most = math.ceil(1000 * (1 - row.low) - 1e-9) / 10
    return f"{found}; at most {most:.1f} % of survivors are missed, 95 % one-sided Clopper-Pearson."
