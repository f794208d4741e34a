"""What attacks without gradients reach within numbers of queries, as rows of a table."""

import math
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from robustkit.evidence.parts import column
from robustkit.evidence.queries import checkpoints, curve

from ..shared.words import UNKNOWN, interval, percent, printable
from .board import Board
from .result_rows import ThreatLabel, distance_text

_COLUMNS = 5  # numbers of queries that fit beside each other


class QueryCell(NamedTuple):
    """What one attack reached within one number of queries, with its 95 % interval."""

    value: str
    interval: str


class QueryRow(NamedTuple):
    """One attack."""

    attack: str
    cells: list[QueryCell]


class QueryBlock(NamedTuple):
    """The attacks on one model at one threat."""

    title: str
    rows: list[QueryRow]


class QueryTable(NamedTuple):
    """The attacks at all threats."""

    marks: list[int]  # numbers of queries
    blocks: list[QueryBlock]


def query_table(board: Board) -> QueryTable | None:
    """The table; None if no attack's queries were counted."""
    most = most_queries(board)
    if not most:
        return None
    marks = checkpoints(most)[-_COLUMNS:]
    table = curve(board.samples.frame, marks)
    threats = (*board.threats, *board.minimums)
    blocks = [_block(table, threat, model, board) for threat in threats for model in board.models]
    return QueryTable(marks, [block for block in blocks if block.rows])


def most_queries(board: Board) -> int:
    """The most queries that an image took; 0 if no attack's queries were counted."""
    parts = [part for part in board.samples.parts if "queries" in part]
    counts = np.concatenate([np.empty(0), *(column(part, "queries") for part in parts)])
    known = counts[~np.isnan(counts)]
    return max(1, int(known.max())) if len(known) else 0


def _block(table: pd.DataFrame, threat: ThreatLabel, model: str, board: Board) -> QueryBlock:
    own = table[(table["norm"] == threat.norm) & (table["eps_text"] == threat.eps_text) & (table["model"] == model)]
    rows = [
        QueryRow(printable(str(attack)), [_cell(row) for row in part.to_dict("records")])
        for attack, part in own.groupby("attack", sort=False)
    ]
    title = f"{printable(threat.norm)} {'distance' if threat.is_minimum else threat.eps_text}"
    return QueryBlock(title if len(board.models) == 1 else f"{title}, {model}", rows)


def _cell(row: Mapping[Hashable, Any]) -> QueryCell:
    if math.isnan(row["median_distance"]):
        broken, n = int(row["broken"]), int(row["n"])
        return QueryCell(percent(broken, n), interval(row["ci_low"], row["ci_high"], broken, n))
    low, high = distance_text(row["distance_low"]), distance_text(row["distance_high"])
    return QueryCell(distance_text(row["median_distance"]) or UNKNOWN, f"{low}-{high}")
